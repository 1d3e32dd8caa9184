//! Messages that wait in all queues of a tenant together.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashMap;

use crate::sync::Mutex;

/// A full queue whose publishers wait for room.
pub trait Full: Send + Sync + fmt::Debug {
    /// Checks whether the queue has room now, and lets its publishers continue if so. The caller holds none
    /// of the tenant's locks.
    fn look_for_room(&self);
}

/// Number and bytes of the messages that wait in all queues of a tenant together.
#[derive(Debug, Default)]
pub struct Queued {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// Queues whose publishers wait for room in any of the tenant's queues, by the ids of their sessions.
    full: Mutex<HashMap<u64, Weak<dyn Full>>>,
    has_full: AtomicBool,
}

impl Queued {
    /// Counts a change of one queue, from `before` to `after` (messages, bytes).
    pub fn count(&self, before: (usize, usize), after: (usize, usize)) {
        // Difference and addition both wrap around, so the sum is correct.
        self.messages.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.bytes.fetch_add(after.1.wrapping_sub(before.1), Ordering::Relaxed);
    }

    /// Registers a full queue, to be checked when any queue of the tenant becomes shorter.
    pub fn note_full(&self, session: u64, queue: Weak<dyn Full>) {
        self.full.lock().entry(session).or_insert(queue);
        self.has_full.store(true, Ordering::Release);
    }

    /// Has the registered queues checked. The caller holds none of the tenant's locks.
    pub fn look_for_room(&self) {
        for full in self.take_full() {
            if let Some(full) = full.upgrade() {
                full.look_for_room();
            }
        }
    }

    fn take_full(&self) -> Vec<Weak<dyn Full>> {
        if !self.has_full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut full = self.full.lock();
        self.has_full.store(false, Ordering::Release);
        full.drain().map(|(_, queue)| queue).collect()
    }

    /// Number of waiting messages.
    pub fn messages(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }

    /// Bytes of the waiting messages, and of messages in flight that are kept until acknowledged.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
