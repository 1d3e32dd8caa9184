//! The thread that keeps a log tidy.

use super::engine::Engine;
use super::tidy::Tidy;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{io, mem};

/// Delay after an error of the disk before the thread tries again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Handle of the thread. Dropping it ends the thread.
pub(super) struct Janitor {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Bell {
    call: Mutex<Call>,
    rung: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    Work,
    End,
}

impl Janitor {
    pub fn start(engine: Arc<Engine>) -> io::Result<Janitor> {
        let bell = Arc::new(Bell::default());
        let thread = Builder::new().name("store-janitor".into()).spawn({
            let bell = bell.clone();
            move || run(&engine, &bell)
        })?;
        Ok(Janitor { bell, thread: Some(thread) })
    }

    /// Wakes the thread, because there is work.
    pub fn wake(&self) {
        let mut call = self.bell.call.lock();
        if *call == Call::None {
            *call = Call::Work;
            self.bell.rung.notify_one();
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        *self.bell.call.lock() = Call::End;
        self.bell.rung.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(engine: &Engine, bell: &Bell) {
    let mut tidy = Tidy::default();
    loop {
        // Errors are not reported here: damage is reported to whoever reads it, and an error of the
        // disk to whoever commits.
        let result = engine.tidy(&mut tidy);
        let mut call = bell.call.lock();
        match result {
            Ok(true) => (),
            Ok(false) if *call == Call::None => bell.rung.wait(&mut call),
            Err(_) if *call != Call::End => drop(bell.rung.wait_for(&mut call, RETRY_INTERVAL)),
            Ok(false) | Err(_) => (),
        }
        match mem::take(&mut *call) {
            Call::End => return,
            Call::None | Call::Work => (),
        }
    }
}
