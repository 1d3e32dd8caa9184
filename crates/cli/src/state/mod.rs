//! `barid state`: the state store of a broker, from the command line.

mod del;
mod get;
mod json;
mod key;
mod lock;
mod reconnect;
mod refused;
mod scan;
mod set;
mod store;
mod watch;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use crate::client::{ConnectArgs, Target};
use refused::Refused;

/// Use the state store of a broker: keys and values, watched and locked
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid state set config/rate 20            prints the version, which is a fencing token
  barid state get config/rate
  barid state watch config/rate --json
  barid state scan 'config/*'
  barid state lock backup -- backup.sh      one client at a time

Keys are UTF-8; use --hex or --base64 for other keys. Values are any bytes. For details of a command
use its --help.

Exit status: 0 as asked for; 1 not as asked for, as standard error explains, or an error; 2 wrong
usage; 3 the broker refused; 27 no answer in time.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the value of a key
    Get(Box<get::Args>),
    /// Set the value of a key
    Set(Box<set::Args>),
    /// Delete a key
    Del(Box<del::Args>),
    /// Delete a key if it has a certain value
    Vdel(Box<del::IfArgs>),
    /// Print the changes of keys as they happen
    Watch(Box<watch::Args>),
    /// List the keys that match a pattern
    Scan(Box<scan::Args>),
    /// Run a command while holding a lock
    Lock(Box<lock::Args>),
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = match &args.command {
        Command::Get(args) => get::run(args),
        Command::Set(args) => set::run(args),
        Command::Del(args) => del::run(args),
        Command::Vdel(args) => del::run_if(args),
        Command::Watch(args) => watch::run(args),
        Command::Scan(args) => scan::run(args),
        Command::Lock(args) => lock::run(args),
    };
    match outcome {
        Err(error) if error.is::<Refused>() => {
            eprintln!("barid: {error:#}");
            Ok(ExitCode::from(3))
        }
        outcome => outcome,
    }
}

/// Returns the broker to connect to, if requests to the state store are possible with these
/// options.
fn target(connect: &ConnectArgs) -> anyhow::Result<Target> {
    let target = connect.target()?;
    if !target.version.is_v5() {
        bail!("the state store needs MQTT 5 (-V 5)");
    }
    if !target.properties.publish.is_empty() {
        bail!("-D publish: requests to the state store have properties of their own");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        state: Args,
    }

    #[test]
    fn no_two_options_have_one_name() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn wrong_usage() {
        for (line, expected) in [
            ("get", "<KEY>"),
            ("set k", "<VALUE|--file <FILE>>"),
            ("set k v --file f", "cannot be used with"),
            ("set k v --if-absent --if-absent-or-equal", "cannot be used with"),
            ("set k v --ttl soon", "a number and a unit"),
            ("set k v --ttl 0s", "greater than 0"),
            ("set k v --fencing 12", "not a version"),
            ("get k --hex --base64", "cannot be used with"),
            ("watch", "<KEY>..."),
            ("watch k --count 0", "0 is not in 1.."),
            ("vdel k", "<VALUE>"),
            ("lock k", "<COMMAND>..."),
            ("lock k --lease 50ms -- true", "at least 100ms"),
            ("lock k --no-wait --timeout 1s -- true", "cannot be used with"),
            ("lock k --fencing A=B -- true", "not a valid name of an environment variable"),
        ] {
            let words = ["barid"].into_iter().chain(line.split(' '));
            let error = Cli::try_parse_from(words).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn what_the_store_cannot_be_asked_with() {
        for (line, expected) in
            [("get k -V 311", "needs MQTT 5"), ("get k -D publish content-type x", "-D publish")]
        {
            let words = ["barid"].into_iter().chain(line.split(' '));
            let cli = Cli::try_parse_from(words).unwrap();
            let error = format!("{:#}", run(&cli.state).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
