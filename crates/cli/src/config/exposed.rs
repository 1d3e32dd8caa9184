//! Warnings about files with secrets that every user of the machine can read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use barid_server::settings::Settings;

/// Permission bit that lets every user read a file.
const EVERYBODY_READS: u32 = 0o004;

/// Returns a warning for each file with secrets that every user can read, the configuration
/// included.
pub fn warnings(file: Option<&Path>, settings: &Settings) -> Vec<String> {
    let has_secret = settings.cluster.as_ref().is_some_and(|it| it.secret_file.is_none());
    let has_keys = has_secret || settings.keys.iter().any(|key| key.key_file.is_none());
    let what = match (settings.users.is_empty(), has_keys) {
        (true, false) => None,
        (false, false) => Some("the hashes of passwords"),
        (true, true) => Some("keys"),
        (false, true) => Some("the hashes of passwords, and keys"),
    };
    let configuration = file.and_then(|file| Some((file, what?)));
    let key_files =
        settings.keys.iter().filter_map(|key| Some((key.key_file.as_deref()?, "a key")));
    let secret_file = settings
        .cluster
        .iter()
        .filter_map(|cluster| Some((cluster.secret_file.as_deref()?, "the secret of the cluster")));
    let private_key =
        settings.tls.iter().map(|tls| (&*tls.key, "the private key of the certificate"));
    let of_links = settings.cluster.iter().filter_map(|cluster| cluster.tls.as_ref());
    let of_links = of_links.map(|tls| (&*tls.key, "the private key of the certificate for links"));
    let headers = settings.telemetry.iter().filter_map(|it| it.headers_file.as_deref());
    let headers = headers.map(|file| (file, "headers for the collector"));
    let secrets = key_files.chain(secret_file).chain(private_key).chain(of_links).chain(headers);
    let exposed = configuration.into_iter().chain(secrets);
    exposed
        .filter(|(file, _)| is_exposed(file))
        .map(|(file, what)| {
            let file = file.display();
            format!("{file} has {what}, and every user of this machine can read it: run `chmod o= {file}`")
        })
        .collect()
}

fn is_exposed(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.mode() & EVERYBODY_READS != 0)
}
