//! The IO threads as a group: their load, and the distribution of connections among them.
//!
//! One thread that reads large batches does more per second of CPU time than two threads that read small
//! batches and wake each other. So a thread gets connections only when the threads before it are busy. A
//! thread that is overloaded gives connections away; see [`Balance`]. Clients that a quota slows down go to the last
//! thread, so that those of other tenants do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard};

use super::{Mailbox, Post};
use crate::logins::Change;
use crate::watchdog::Watchdog;

/// Period over which a thread measures its load before it publishes it.
pub(super) const WINDOW: Duration = Duration::from_millis(100);

/// Load from which on a thread gets no new connections, in thousandths of its time.
const FULL: u32 = 600;

/// Load above which a thread gives connections away, in thousandths of its time.
const OVERLOADED: u32 = 850;

/// Load below which a thread takes connections from an overloaded one, in thousandths of its time.
const IDLE: u32 = 500;

/// Duration of a round from which on a thread gets no new connections: the round may not end soon, and the
/// thread publishes its load only after it.
const STUCK: Duration = Duration::from_millis(50);

/// Number of consecutive windows for which a thread must be overloaded before it gives connections away. The
/// count restarts each time.
const PATIENCE: u32 = 3;

/// One IO thread, as the other threads see it.
#[derive(Clone, Debug)]
pub struct IoThread {
    mailbox: Mailbox,
    load: Arc<Load>,
    watchdog: Arc<Watchdog>,
}

/// The load of a thread.
#[derive(Debug, Default)]
pub struct Load {
    connections: AtomicUsize,
    /// Busy time in the last window, in thousandths.
    busy: AtomicU32,
}

/// All IO threads.
#[derive(Clone, Debug)]
pub struct IoThreads {
    threads: Arc<[IoThread]>,
    /// Written while a change is posted to all threads; see [`Self::without_changes`].
    changes: Arc<RwLock<()>>,
}

impl IoThread {
    /// Creates a thread without connections.
    pub fn new(mailbox: Mailbox, watchdog: Arc<Watchdog>) -> Self {
        Self { mailbox, load: Arc::default(), watchdog }
    }

    /// Returns the watchdog that measures the thread's turns.
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Returns the thread's mailbox.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Counts a connection that is on its way to the thread.
    pub fn connection_comes(&self) {
        self.load.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a connection that has left the thread.
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
    /// Creates the group. `threads` must not be empty.
    pub fn new(threads: Vec<IoThread>) -> Self {
        Self { threads: threads.into(), changes: Arc::default() }
    }

    /// Has all threads check their connections after a change.
    pub fn check(&self, change: &Change) {
        let _changes = self.changes.write();
        for thread in self.threads.iter() {
            thread.mailbox.post(Post::Check(change.clone()));
        }
    }

    /// Returns a guard. As long as it exists, no change is posted: each change has been posted to all threads, or
    /// to none yet. A thread that has no check to do then may give connections away. None of them is missed,
    /// because a later check finds them with the other thread.
    pub(super) fn without_changes(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read()
    }

    /// Returns one of the threads.
    pub fn get(&self, index: usize) -> &IoThread {
        &self.threads[index]
    }

    /// Iterates over all threads.
    pub fn iter(&self) -> impl Iterator<Item = &IoThread> {
        self.threads.iter()
    }

    /// Returns the thread that gets a new connection: the first one that takes more. If there is none, the
    /// one with the fewest connections among those that are not stuck.
    pub fn for_new_connection(&self) -> &IoThread {
        let now = Instant::now();
        self.threads.iter().find(|thread| thread.takes_more(now)).unwrap_or_else(|| {
            let order = |thread: &&IoThread| {
                let is_stuck = thread.watchdog.in_round(now) >= STUCK;
                (is_stuck, thread.load.connections.load(Ordering::Relaxed))
            };
            self.threads.iter().min_by_key(order).expect("there is at least one IO thread")
        })
    }

    /// Returns the thread for clients that a quota slows down: the last one, which gets other connections only when
    /// all others are busy. `None`: this is it, or it is busy itself.
    pub(super) fn for_clients_at_limit(&self, me: usize) -> Option<usize> {
        let last = self.threads.len() - 1;
        (me != last && self.threads[last].busy() < IDLE).then_some(last)
    }

    /// Returns the least busy of the other threads, if it is idle enough to take connections.
    fn helper(&self, me: usize) -> Option<usize> {
        (0..self.threads.len())
            .filter(|&index| index != me && self.threads[index].busy() < IDLE)
            .min_by_key(|&index| self.threads[index].busy())
    }
}

/// A thread's measurement of its own load.
#[derive(Debug)]
pub(super) struct Balance {
    window_start: Instant,
    busy: Duration,
    /// Load in the last window, in thousandths.
    permille: u32,
    overloaded: u32,
    /// Number of the present window. Each connection remembers the window in which it was last active.
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

    /// Maximum time that the thread may wait for events: a thread that was busy must soon publish that it no
    /// longer is.
    pub(super) fn patience(&self) -> Option<Duration> {
        (self.permille >= IDLE / 2).then_some(WINDOW)
    }

    /// Notes that the thread has worked from `start` to `end`. At the end of a window, returns the index of
    /// the thread that is to take over some connections, if the thread has been overloaded for long enough.
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

    fn threads(count: usize) -> IoThreads {
        let thread = |_| {
            let poll = Poll::new().unwrap();
            let waker = Waker::new(poll.registry(), Token(0)).unwrap();
            IoThread::new(Mailbox::new(waker), Arc::default())
        };
        IoThreads::new((0..count).map(thread).collect())
    }

    #[test]
    fn clients_at_their_limit_go_to_the_last_thread_while_that_has_time() {
        let all = threads(3);
        assert_eq!([0, 1, 2].map(|me| all.for_clients_at_limit(me)), [Some(2), Some(2), None]);
        all.get(2).load.busy.store(IDLE, Ordering::Relaxed);
        assert_eq!(all.for_clients_at_limit(0), None);
        assert_eq!(threads(1).for_clients_at_limit(0), None);
    }

    #[test]
    fn new_connections_go_past_a_thread_that_does_not_come_back_from_its_round() {
        let threads = threads(3);
        let chosen = || {
            let chosen = threads.for_new_connection();
            threads.iter().position(|thread| Arc::ptr_eq(&thread.load, &chosen.load)).unwrap()
        };
        let long_ago = Instant::now() + Duration::from_millis(1);
        std::thread::sleep(2 * STUCK);
        assert_eq!(chosen(), 0);
        threads.get(0).watchdog().round_begins(long_ago);
        assert_eq!(chosen(), 1);
        // Of the full threads, the one with the fewest connections gets the new one, unless it is stuck.
        for busy in [1, 2] {
            threads.get(busy).load.busy.store(1_000, Ordering::Relaxed);
        }
        threads.get(1).connection_comes();
        assert_eq!(chosen(), 2);
        threads.get(0).watchdog().round_ends();
        assert_eq!(chosen(), 0);
    }
}
