//! `barid migrate mosquitto`: a configuration from mosquitto.conf, its password file and its ACL file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use barid_auth::password::{self, Cost};
use barid_store::private;

use super::acl::Acl;
use super::conf::Conf;
use super::document::{self, Ruled};
use super::limits::Limits;
use super::listeners;
use super::notes::Notes;
use super::passwords::{self, User};
use super::security::{self, Security};
use crate::config;
use crate::output::print;

/// Read mosquitto.conf, and its password and ACL files
#[derive(clap::Args)]
#[command(after_help = "\
Writes a configuration with the listeners, certificates, limits, users and rules of a mosquitto. Users
keep their passwords. What cannot be carried over, or has another meaning, is named with file, line and
reason: on standard error, and in comments at the beginning of the configuration.

Nothing is changed, and no broker needs to run. Messages and sessions in mosquitto.db stay where they are.

Exit status: 0 the configuration is valid, 1 it is not or could not be made.

Examples:
  barid migrate mosquitto --conf /etc/mosquitto/mosquitto.conf
  barid migrate mosquitto --conf /etc/mosquitto/mosquitto.conf --output /etc/barid/barid.toml")]
pub struct Args {
    /// mosquitto.conf; the files that it names are read, too
    #[arg(long, value_name = "FILE")]
    conf: PathBuf,
    /// Write to a new file, which only its owner can read, and not to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut notes = Notes::default();
    let text = translate(&args.conf, &mut notes)?;
    for note in notes.iter() {
        eprintln!("{note}");
    }
    match &args.output {
        None => print(&text)?,
        Some(file) => write(file, &text)?,
    }
    let name = args.output.as_deref().unwrap_or(Path::new("the configuration"));
    match config::parse(&name.display().to_string(), &text) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(problems) => {
            eprintln!("barid: the configuration cannot be used as it is:\n{problems}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Writes a new file, which has hashes of passwords.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    private::options()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", file.display()))
}

/// Returns the configuration.
///
/// # Errors
/// A file cannot be read, or mosquitto could not read it, either.
pub(super) fn translate(conf: &Path, notes: &mut Notes) -> anyhow::Result<String> {
    let origin = conf.display().to_string();
    let conf = Conf::read(conf, notes)?;
    let mut limits = Limits::default();
    for line in &conf.global {
        let is_read = limits.take(line, notes);
        if !is_read && !is_of_security(&line.name) {
            line.leave(notes);
        }
    }
    if !limits.limits.contains_key("max_packet_size") {
        notes.add("packets of more than 2 MiB (`max_packet_size`) are refused; mosquitto has no limit, or one of 2,000,000 bytes since 2.1");
    }
    let mut possible = listeners::possible(&conf, notes);
    let security = security::choose(&conf, &mut possible, notes);
    let users = users(&security, notes)?;
    let listeners = listeners::carry(&conf, &possible, !users.is_empty(), notes);
    Ok(document::write(&origin, &listeners, &limits, &users, notes))
}

/// Whether [`security::choose`] reads an option.
fn is_of_security(name: &str) -> bool {
    matches!(name, "acl_file" | "allow_anonymous" | "password_file" | "per_listener_settings")
}

/// Returns the users with their rules. Empty: anybody may connect, as in mosquitto.
fn users(security: &Security, notes: &mut Notes) -> anyhow::Result<Vec<Ruled>> {
    let mut users = match &security.password_file {
        Some(path) => passwords::read(path, notes)?,
        None => Vec::new(),
    };
    let acl = security.acl_file.as_deref().map(Acl::read).transpose()?;
    match &acl {
        Some(acl) => note_rules(acl, &users, notes),
        None if users.is_empty() => {}
        None => notes.add(
            "without an acl_file users may do everything, but to subscribe to $SYS/# they need a rule that \
             allows it",
        ),
    }
    if users.is_empty() && !security.anonymous {
        // Without any user Barid would let anybody in, and mosquitto lets nobody in.
        let reason = "no user is carried over; without any, everybody could connect, so there is one whose \
                      password nobody knows: replace it";
        notes.add(format!("users: {reason}"));
        let hash = password::hash(&password::random_secret(), Cost::Device);
        users.push(User { name: "replace-me".into(), hash });
    }
    if users.is_empty() && acl.is_some() {
        let reason =
            "without users there are no rules: everybody on this machine may do everything";
        notes.add(format!("acl_file: {reason}"));
    }
    let with_rules = |user: User| {
        let rules = acl.as_ref().map(|acl| acl.rules(&user.name, notes));
        (user, rules)
    };
    Ok(users.into_iter().map(with_rules).collect())
}

/// Adds notes about rules that no user has, and about differences between the rules of the two brokers.
fn note_rules(acl: &Acl, users: &[User], notes: &mut Notes) {
    if let Some(first) = acl.anonymous.first() {
        let count = u64::try_from(acl.anonymous.len()).unwrap_or(u64::MAX);
        let what = crate::plural::count(count, "topic", "topics");
        let reason = "for clients without a user name, which have no rules";
        notes.at(&first.place, format!("{what} before the first user"), reason);
    }
    for (name, (place, _)) in &acl.users {
        if !users.iter().any(|user| user.name == *name) {
            notes.at(place, format!("user {name:?}"), "has rules, but no password");
        }
    }
    notes.add(
        "rules for reading are checked when a client subscribes, not for each message: a subscription must lie \
         within the topics that the user may read, and touch none that are denied",
    );
}
