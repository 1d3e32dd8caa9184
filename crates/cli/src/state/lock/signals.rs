//! The signals that are for the command.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Those that have come and were not passed on yet.
pub struct Signals {
    caught: [(i32, Arc<AtomicBool>); 3],
    /// The next one ends us the hard way, as there is no command whose lock would be left behind.
    impatient: Arc<AtomicBool>,
}

impl Signals {
    /// From now on they do not end us.
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

    /// One that has come, to be passed on.
    pub fn take(&self) -> Option<i32> {
        let mut caught = self.caught.iter();
        caught.find(|(_, flag)| flag.swap(false, Ordering::Relaxed)).map(|(signal, _)| *signal)
    }

    /// The exit status, if one has come while there is no command.
    pub fn end(&self) -> Option<ExitCode> {
        let signal = self.take()?;
        self.impatient.store(true, Ordering::Relaxed);
        Some(exit_code(signal))
    }
}

/// What a shell gives for a process that a signal ended.
pub fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128_u8.wrapping_add(signal as u8))
}
