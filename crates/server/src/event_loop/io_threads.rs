//! The IO threads as a group: how busy each is, and where connections go.
//!
//! One thread that reads large batches does more per second of CPU than two that read small ones and
//! wake each other, so a thread is used only when those before it are busy. A thread that has too much
//! to do gives connections away; see [`Balance`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Mailbox;
use crate::watchdog::Watchdog;

/// How long a thread watches itself before it says how busy it is.
pub(super) const WINDOW: Duration = Duration::from_millis(100);

/// New connections go past a thread that is busier than this, in thousandths of its time.
const FULL: u32 = 600;

/// A thread that is busier than this gives connections away …
const OVERLOADED: u32 = 850;

/// … to one that is less busy than this.
const IDLE: u32 = 500;

/// New connections go past a thread that has been in one round for longer: it may not come back soon, and
/// cannot say how busy it is before it does.
const STUCK: Duration = Duration::from_millis(50);

/// For how many windows a thread is overloaded before it acts, and waits after it has.
const PATIENCE: u32 = 3;

/// One IO thread, as the others see it.
#[derive(Clone, Debug)]
pub struct IoThread {
    mailbox: Mailbox,
    load: Arc<Load>,
    watchdog: Arc<Watchdog>,
}

/// How much a thread has to do.
#[derive(Debug, Default)]
pub struct Load {
    connections: AtomicUsize,
    /// Thousandths of the last window that it was not waiting.
    busy: AtomicU32,
}

/// All IO threads.
#[derive(Clone, Debug)]
pub struct IoThreads(Arc<[IoThread]>);

impl IoThread {
    /// A thread without connections.
    pub fn new(mailbox: Mailbox, watchdog: Arc<Watchdog>) -> Self {
        Self { mailbox, load: Arc::default(), watchdog }
    }

    /// How long its turns take.
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Where to post for it.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// A connection is on its way to the thread.
    pub fn connection_comes(&self) {
        self.load.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has left the thread.
    pub fn connection_leaves(&self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn busy(&self) -> u32 {
        self.load.busy.load(Ordering::Relaxed)
    }

    fn takes_more(&self, now: Instant) -> bool {
        self.busy() < FULL && self.watchdog.in_round(now) < STUCK
    }
}

impl IoThreads {
    /// The group of these threads; at least one.
    pub fn new(threads: Vec<IoThread>) -> Self {
        Self(threads.into())
    }

    /// One of them.
    pub fn get(&self, index: usize) -> &IoThread {
        &self.0[index]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &IoThread> {
        self.0.iter()
    }

    /// Who gets a new connection: the first that is not full, or the one with the fewest, of those that are
    /// not stuck.
    pub fn for_new_connection(&self) -> &IoThread {
        let now = Instant::now();
        self.0.iter().find(|thread| thread.takes_more(now)).unwrap_or_else(|| {
            let order = |thread: &&IoThread| {
                let is_stuck = thread.watchdog.in_round(now) >= STUCK;
                (is_stuck, thread.load.connections.load(Ordering::Relaxed))
            };
            self.0.iter().min_by_key(order).expect("there is at least one IO thread")
        })
    }

    /// The least busy of the others, if it is idle enough to take something.
    fn helper(&self, me: usize) -> Option<usize> {
        (0..self.0.len())
            .filter(|&index| index != me && self.0[index].busy() < IDLE)
            .min_by_key(|&index| self.0[index].busy())
    }
}

/// A thread's watch over itself.
#[derive(Debug)]
pub(super) struct Balance {
    window_start: Instant,
    busy: Duration,
    /// What the last window said, in thousandths.
    permille: u32,
    overloaded: u32,
    /// Which window it is; connections remember in which they were last active.
    window: u32,
}

impl Balance {
    pub(super) fn new() -> Self {
        Self {
            window_start: Instant::now(),
            busy: Duration::ZERO,
            permille: 0,
            overloaded: 0,
            window: 1,
        }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// How long the thread may wait: one that was busy must soon say that it is no longer.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.permille >= IDLE / 2).then_some(WINDOW)
    }

    /// The thread has worked from `start` to `end`. At the end of a window: the index of the thread
    /// that is to take over some connections, if it is time for that.
    pub(super) fn worked(
        &mut self,
        start: Instant,
        end: Instant,
        me: usize,
        threads: &IoThreads,
    ) -> Option<usize> {
        self.busy += end - start;
        let elapsed = end - self.window_start;
        if elapsed < WINDOW {
            return None;
        }
        let permille = self.busy.as_micros() * 1_000 / elapsed.as_micros().max(1);
        let permille = u32::try_from(permille).unwrap_or(1_000).min(1_000);
        self.permille = permille;
        threads.get(me).load.busy.store(permille, Ordering::Relaxed);
        self.busy = Duration::ZERO;
        self.window_start = end;
        self.window = self.window.wrapping_add(1);
        self.overloaded = if permille > OVERLOADED { self.overloaded + 1 } else { 0 };
        if self.overloaded < PATIENCE {
            return None;
        }
        self.overloaded = 0;
        threads.helper(me)
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token, Waker};

    use super::*;

    #[test]
    fn new_connections_go_past_a_thread_that_does_not_come_back_from_its_round() {
        let thread = || {
            let poll = Poll::new().unwrap();
            let waker = Waker::new(poll.registry(), Token(0)).unwrap();
            IoThread::new(Mailbox::new(waker), Arc::default())
        };
        let threads = IoThreads::new((0..3).map(|_| thread()).collect());
        let chosen = || {
            let chosen = threads.for_new_connection();
            threads.iter().position(|thread| Arc::ptr_eq(&thread.load, &chosen.load)).unwrap()
        };
        let long_ago = Instant::now() + Duration::from_millis(1);
        std::thread::sleep(2 * STUCK);
        assert_eq!(chosen(), 0);
        threads.get(0).watchdog().round_begins(long_ago);
        assert_eq!(chosen(), 1);
        // Of those that are full, the one with the fewest connections; but not the stuck one.
        for busy in [1, 2] {
            threads.get(busy).load.busy.store(1_000, Ordering::Relaxed);
        }
        threads.get(1).connection_comes();
        assert_eq!(chosen(), 2);
        threads.get(0).watchdog().round_ends();
        assert_eq!(chosen(), 0);
    }
}
