//! Certificates and keys that the settings name.

use std::path::Path;

use barid_server::settings::Settings;
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::problem::Place;
use super::validate::{Objections, listeners};

pub fn check(settings: &Settings, found: &mut Objections) {
    let Some(tls) = &settings.tls else {
        for (name, _) in listeners(settings).filter(|(name, _)| matches!(*name, "mqtts" | "wss")) {
            found.add(
                Place::of(&["listeners", name, "address"]),
                format!("the {name} listener has no certificate"),
                "add a [tls] table with `certificate` and `key`, or switch the listener off",
            );
        }
        return;
    };
    check_certificates(Place::of(&["tls", "certificate"]), &tls.certificate, found);
    if let Err(error) = PrivateKeyDer::from_pem_file(&tls.key) {
        object(Place::of(&["tls", "key"]), &tls.key, "private key", &error, found);
    }
    if let Some(client_ca) = &tls.client_ca {
        check_certificates(Place::of(&["tls", "client_ca"]), client_ca, found);
    } else if tls.require_client_certificate {
        found.add(
            Place::of(&["tls", "require_client_certificate"]),
            "client certificates are required, but nothing says which to accept",
            "set `client_ca` to the PEM file of the authority that issues them",
        );
    }
}

fn check_certificates(place: Place, path: &Path, found: &mut Objections) {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            object(place, path, "certificate", &pem::Error::NoItemsFound, found);
        }
        Ok(_) => {}
        Err(error) => object(place, path, "certificate", &error, found),
    }
}

fn object(place: Place, path: &Path, kind: &str, error: &pem::Error, found: &mut Objections) {
    let path = path.display();
    match error {
        pem::Error::Io(error) => {
            let hint = "a relative path counts from the directory in which barid was started";
            found.add(place, format!("cannot read {path}: {error}"), hint);
        }
        pem::Error::NoItemsFound => {
            let hint = "the file must be PEM: it has lines like -----BEGIN …-----";
            found.add(place, format!("there is no {kind} in {path}"), hint);
        }
        error => found.add(place, format!("{path} is not a PEM file: {error}"), ""),
    }
}
