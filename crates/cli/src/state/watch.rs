//! `barid state watch`.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use statestore_proto::{Command, Reply};

use super::json::Line;
use super::key::Notation;
use super::reconnect::Pauses;
use super::store::{Change, Extras, Store, unexpected};
use crate::client::{ConnectArgs, Target};
use crate::output::print_on;
use crate::span;

/// Print the changes of keys as they happen
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Prints a line for each change: the key, SET and the value, or the key and DELETE, also when a key
expires. After a lost connection it connects again; changes made meanwhile are not printed, and a
message on standard error says so.

Examples:
  barid state watch config/rate
  barid state watch door window --json      {\"key\":…,\"op\":\"SET\",\"value\":…,\"version\":…}
  barid state watch lock --count 1 --timeout 30s

Exit status: 0 as asked for; 1 an error; 2 wrong usage; 3 the broker refused; 27 time is up."
)]
pub struct Args {
    /// A key; it need not exist
    #[arg(value_name = "KEY", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    notation: Notation,
    /// Print a JSON object for each change, with the version
    #[arg(long)]
    json: bool,
    /// Exit after this number of changes
    #[arg(short = 'C', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time, with status 27: seconds, or 500ms, 5m, 1h
    #[arg(short = 'W', long, value_name = "TIME", value_parser = span::parse_some)]
    timeout: Option<Duration>,
    /// Exit when the connection is lost instead of connecting again
    #[arg(long)]
    no_reconnect: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Longest wait; a signal is noticed after it.
const WAIT: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = super::target(&args.connect)?;
    let keys = args.names.iter().map(|name| args.notation.read(name)).collect::<Result<_, _>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the program immediately.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let pauses = Pauses::up_to(LONGEST_PAUSE);
    Watcher { args, target, keys, stop, deadline, pauses, watching: false, printed: 0 }.run()
}

struct Watcher<'a> {
    args: &'a Args,
    target: Target,
    keys: Vec<Vec<u8>>,
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
    pauses: Pauses,
    /// Whether the keys have been watched successfully once.
    watching: bool,
    printed: u64,
}

impl Watcher<'_> {
    fn run(mut self) -> anyhow::Result<ExitCode> {
        loop {
            let error = match self.run_once() {
                Ok(end) => return Ok(end),
                Err(error) => error,
            };
            // A connection that never worked will hardly work in a second.
            let may_pass = self.watching && !self.args.no_reconnect;
            let Some(pause) = self.pauses.after(&error).filter(|_| may_pass) else {
                return Err(error);
            };
            eprintln!(
                "barid: {error:#}\nbarid: connecting again in {} ms; changes made meanwhile are not reported",
                pause.as_millis()
            );
            if let ControlFlow::Break(end) = self.sleep(pause) {
                return Ok(end);
            }
        }
    }

    fn run_once(&mut self) -> anyhow::Result<ExitCode> {
        let mut store = Store::connect_to_watch(&self.target)?;
        for key in &self.keys {
            let command = Command::KeyNotify { key, stop: false };
            match store.request(&command, Extras::default())?.reply() {
                Reply::Ok => {}
                other => return Err(unexpected(&other)),
            }
        }
        self.watching = true;
        self.pauses.reset();
        loop {
            if let ControlFlow::Break(end) = self.end() {
                store.disconnect();
                return Ok(end);
            }
            let wait = Instant::now() + WAIT;
            let until = self.deadline.map_or(wait, |deadline| deadline.min(wait));
            let Some(change) = store.change(until)? else { continue };
            if !print_on(shown(&change, self.args))? {
                return Ok(ExitCode::SUCCESS);
            }
            self.printed += 1;
        }
    }

    fn end(&self) -> ControlFlow<ExitCode> {
        if self.stop.load(Ordering::Relaxed) || self.args.count == Some(self.printed) {
            return ControlFlow::Break(ExitCode::SUCCESS);
        }
        match self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            true => ControlFlow::Break(ExitCode::from(27)),
            false => ControlFlow::Continue(()),
        }
    }

    fn sleep(&self, pause: Duration) -> ControlFlow<ExitCode> {
        let until = Instant::now() + pause;
        while self.end().is_continue() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        self.end()
    }
}

fn shown(change: &Change, args: &Args) -> Vec<u8> {
    let op = if change.value.is_some() { "SET" } else { "DELETE" };
    if args.json {
        let line = Line::of(&change.key).op(op).version(change.version.as_deref());
        let line = match &change.value {
            Some(value) => line.value(value),
            None => line,
        };
        return line.line().into_bytes();
    }
    let mut shown = args.notation.write(&change.key);
    shown.push(b' ');
    shown.extend_from_slice(op.as_bytes());
    if let Some(value) = &change.value {
        shown.push(b' ');
        shown.extend_from_slice(value);
    }
    shown.push(b'\n');
    shown
}
