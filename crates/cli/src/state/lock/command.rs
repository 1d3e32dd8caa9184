//! The command that runs under the lock.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGINT;

use super::lease::Lease;
use super::signals::{self, Signals};

/// Interval between two checks, and so the longest delay until an end or a signal is noticed.
const POLL: Duration = Duration::from_millis(10);

/// A running command.
pub struct Running {
    child: Child,
    pid: Pid,
    /// Whether the command has a process group of its own. On a terminal it shares ours: otherwise
    /// it could not read from the terminal, and input there, Ctrl-C included, would not reach it.
    has_group: bool,
}

/// Reason why a command could not be started.
#[derive(Debug)]
pub struct Failure {
    command: String,
    error: io::Error,
}

impl Running {
    /// Starts `command`, with the token in these environment variables.
    pub fn start<'a>(
        command: &[String],
        variables: impl Iterator<Item = &'a str>,
        token: &str,
    ) -> Result<Self, Failure> {
        let [program, arguments @ ..] = command else { unreachable!("an argument is required") };
        let has_group = !is_in_foreground();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.map(|variable| (variable, token)));
        if has_group {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| Failure { command: program.clone(), error })?;
        Ok(Self { pid: Pid::from_child(&child), child, has_group })
    }

    /// Waits for the end of the command. Passes signals on, and ends the command if the lease of
    /// the lock `name` is lost.
    pub fn supervise(
        mut self,
        lease: &Lease,
        signals: &Signals,
        grace: Duration,
        name: &str,
    ) -> io::Result<ExitStatus> {
        let mut kill_at = None;
        let mut status = None;
        loop {
            if status.is_none() {
                status = self.child.try_wait()?;
            }
            if let Some(status) = status
                && (kill_at.is_none() || !self.has_rest())
            {
                return Ok(status);
            }
            while let Some(signal) = signals.take() {
                // The terminal has already sent SIGINT to all processes that share it.
                if signal != SIGINT || self.has_group {
                    self.signal(signal);
                }
            }
            let now = Instant::now();
            match kill_at {
                None => {
                    if let Some(why) = lease.lost(now) {
                        eprintln!("barid: the lock {name} is lost: {why}; ending the command");
                        self.signal(Signal::TERM.as_raw());
                        kill_at = Some(now + grace);
                    }
                }
                Some(at) if now >= at => {
                    self.signal(Signal::KILL.as_raw());
                    return self.child.wait();
                }
                Some(_) => {}
            }
            thread::sleep(POLL);
        }
    }

    /// Whether processes of the command's group still run; they must not continue without the lock
    /// either.
    fn has_rest(&self) -> bool {
        self.has_group && rustix::process::test_kill_process_group(self.pid).is_ok()
    }

    /// Sends a signal. An error because the command has ended meanwhile is ignored.
    fn signal(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        let _ = match self.has_group {
            true => rustix::process::kill_process_group(self.pid, signal),
            false => rustix::process::kill_process(self.pid, signal),
        };
    }
}

/// Whether this process receives what is typed on the terminal of standard input.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns the exit status that a shell would give for the command.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => signals::exit_code(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

impl Failure {
    /// Returns the exit status that a shell would give.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.error.kind() == ErrorKind::NotFound { 127 } else { 126 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot run {}: {}", self.command, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell command under a lease of `lease_ms` milliseconds, and returns its exit status.
    fn supervised(script: &str, lease_ms: u64, grace_ms: u64) -> ExitStatus {
        let command = ["sh", "-c", script].map(String::from);
        let running = Running::start(&command, ["A", "B"].into_iter(), "7:1:StateStore").unwrap();
        let lease = Lease::until(Instant::now() + Duration::from_millis(lease_ms));
        let signals = Signals::catch().unwrap();
        running.supervise(&lease, &signals, Duration::from_millis(grace_ms), "x").unwrap()
    }

    #[test]
    fn its_exit_status_and_its_environment() {
        assert_eq!(supervised("exit 7", 60_000, 0).code(), Some(7));
        let script = r#"test "$A-$B" = 7:1:StateStore-7:1:StateStore"#;
        assert_eq!(supervised(script, 60_000, 0).code(), Some(0));
        assert_eq!(supervised("kill -9 $$", 60_000, 0).signal(), Some(9));
    }

    #[test]
    fn ended_when_the_lock_is_lost() {
        let start = Instant::now();
        assert_eq!(supervised("sleep 60", 50, 60_000).signal(), Some(15));
        assert_eq!(supervised("trap 'exit 5' TERM; sleep 60 & wait", 200, 60_000).code(), Some(5));
        assert_eq!(supervised("trap '' TERM; sleep 60", 200, 100).signal(), Some(9));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_cannot_be_run() {
        for (program, status) in [("/no/such/program", 127), ("/etc", 126)] {
            let failure = Running::start(&[program.into()], std::iter::empty(), "");
            let failure = failure.err().unwrap();
            assert_eq!(failure.exit_code(), ExitCode::from(status), "{failure}");
            assert!(failure.to_string().contains(program));
        }
    }
}
