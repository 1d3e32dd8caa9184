//! `barid state lock`: runs a command while holding a lock.
//!
//! One thread, the [`Keeper`], talks to the broker: it acquires the lock, renews the lease and
//! releases it. Another, in [`command`], supervises the command: it passes signals on, and ends the
//! command once the lease is over, even while the first thread waits for a broker that does not
//! answer. They share the [`Lease`].

mod command;
mod keeper;
mod lease;
mod signals;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::key::{Notation, shown};
use crate::client::ConnectArgs;
use crate::span;
use command::Running;
use keeper::{Acquired, Keeper};
use lease::Lease;
use signals::Signals;

/// Run a command while holding a lock
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
The lock is a key that is set to the name of the holder if the key does not exist. It expires with the
lease. barid renews the lease after a third of its time, and deletes the key when the command ends. If the
lock is lost earlier, because the broker was unreachable for too long or another client deleted the key,
barid ends the command with SIGTERM, and with SIGKILL after the grace period.

A lease alone is not enough: a command that was suspended for a while can continue after it has lost the
lock. Therefore the resource that the command changes must check the fencing token. The token is in the
environment of the command, and `barid state set --fencing` sends it.

SIGINT, SIGTERM and SIGHUP are passed on to the command. In the foreground of a terminal the command
shares barid's process group; elsewhere it gets its own process group, and the whole group is signalled.

Examples:
  barid state lock backup -- backup.sh
  barid state lock backup --no-wait -- backup.sh
  barid state lock door --lease 5s -- sh -c 'barid state set door/state open --fencing $BARID_FENCING_TOKEN'
  barid state lock leader --holder $(hostname) --fencing TOKEN -- serve

Exit status: that of the command, or 128 plus the number of the signal that ended it; 126 and 127 if it
cannot be run or found; 4 the lock was lost. If the command was not run: 1 another client has the lock
(--no-wait), or an error; 2 wrong usage; 3 the broker refused; 27 time is up; 128 plus the number of a
signal."
)]
pub struct Args {
    /// Name of the lock, which is a key
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    notation: Notation,
    /// Name of the holder that others see; must be unique [default: the client identifier]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,
    /// Time after which the lock expires if it is no longer renewed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_lease)]
    lease: Duration,
    /// Wait for the lock no longer than this: seconds, or 500ms, 5m, 1h
    #[arg(short = 'W', long, value_name = "TIME", value_parser = span::parse_some)]
    timeout: Option<Duration>,
    /// Do not wait for the lock
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Also put the fencing token into this environment variable of the command
    #[arg(long, value_name = "VARIABLE", value_parser = parse_variable)]
    fencing: Option<String>,
    /// Time that the command has to end after the lock is lost, before SIGKILL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span::parse_some)]
    grace: Duration,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Command to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Minimum lease: a shorter one ends before a slow network has answered the renewal.
const LEASE_MIN: Duration = Duration::from_millis(100);

fn parse_lease(text: &str) -> Result<Duration, String> {
    match span::parse_some(text)? {
        lease if lease < LEASE_MIN => Err(format!("at least {}ms", LEASE_MIN.as_millis())),
        lease => Ok(lease),
    }
}

fn parse_variable(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(['=', '\0']) {
        true => Err("not a valid name of an environment variable".into()),
        false => Ok(text.into()),
    }
}

/// Exit status if the lock was lost.
const LOST: u8 = 4;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let signals = Signals::catch().context("cannot catch signals")?;
    let target = super::target(&args.connect)?;
    let name = args.notation.read(&args.name)?;
    let mut keeper = Keeper::new(args, &signals, target, &name);
    let held = match keeper.acquire()? {
        Acquired::Held(held) => held,
        Acquired::Not(end) => return Ok(end),
    };

    let variables = args.fencing.iter().map(String::as_str).chain(["BARID_FENCING_TOKEN"]);
    let running = match Running::start(&args.command, variables, &held.token) {
        Ok(running) => running,
        Err(failure) => {
            keeper.release(&held);
            eprintln!("barid: {failure}");
            return Ok(failure.exit_code());
        }
    };
    let lease = Lease::until(held.until);
    let status = thread::scope(|scope| {
        let supervisor = scope.spawn(|| {
            let status = running.supervise(&lease, &signals, args.grace, &shown(&name));
            lease.end();
            status
        });
        keeper.keep(&held, &lease);
        supervisor.join().expect("waiting for a process does not panic")
    })?;
    if lease.is_lost() {
        return Ok(ExitCode::from(LOST));
    }
    keeper.release(&held);
    Ok(command::exit_code(status))
}
