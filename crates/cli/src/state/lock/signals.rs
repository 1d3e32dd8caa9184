//! Signals for the command.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that were caught and not yet passed on.
pub struct Signals {
    caught: [(i32, Arc<AtomicBool>); 3],
    /// If set, the next signal ends the process immediately: no command runs whose lock would be
    /// left behind.
    impatient: Arc<AtomicBool>,
}

impl Signals {
    /// Catches the signals, so that they do not end this process.
    pub fn catch() -> io::Result<Self> {
        let impatient = Arc::new(AtomicBool::new(false));
        let caught = [SIGINT, SIGTERM, SIGHUP].map(|signal| (signal, Arc::default()));
        for (signal, flag) in &caught {
            let status = 128 + signal;
            signal_hook::flag::register_conditional_shutdown(*signal, status, impatient.clone())?;
            signal_hook::flag::register(*signal, Arc::clone(flag))?;
        }
        Ok(Self { caught, impatient })
    }

    /// Takes a caught signal, to pass it on.
    pub fn take(&self) -> Option<i32> {
        let mut caught = self.caught.iter();
        caught.find(|(_, flag)| flag.swap(false, Ordering::Relaxed)).map(|(signal, _)| *signal)
    }

    /// Returns the exit status for a signal that was caught while no command runs.
    pub fn end(&self) -> Option<ExitCode> {
        let signal = self.take()?;
        self.impatient.store(true, Ordering::Relaxed);
        Some(exit_code(signal))
    }
}

/// Returns the status that a shell gives for a process ended by a signal.
pub fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128_u8.wrapping_add(signal as u8))
}
