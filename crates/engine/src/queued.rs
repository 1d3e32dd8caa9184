//! What waits in all queues of a tenant.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashMap;

use crate::sync::Mutex;

/// A queue that has no room, and whose publishers wait for some.
pub trait Full: Send + Sync + fmt::Debug {
    /// There may be room. Nothing of the tenant's is locked by the caller.
    fn look_for_room(&self);
}

/// What waits in all queues of a tenant.
#[derive(Debug, Default)]
pub struct Queued {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// Queues whose publishers wait for room in any of the tenant's, by their sessions' numbers.
    full: Mutex<HashMap<u64, Weak<dyn Full>>>,
    has_full: AtomicBool,
}

impl Queued {
    /// Notes that a queue has changed from so many messages and bytes to so many.
    pub fn count(&self, before: (usize, usize), after: (usize, usize)) {
        // Both wrap, and the sum is right nevertheless.
        self.messages.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.bytes.fetch_add(after.1.wrapping_sub(before.1), Ordering::Relaxed);
    }

    /// Has a full queue looked at when any queue of the tenant has got shorter.
    pub fn note_full(&self, session: u64, queue: Weak<dyn Full>) {
        self.full.lock().entry(session).or_insert(queue);
        self.has_full.store(true, Ordering::Release);
    }

    /// The queues to look at.
    pub fn take_full(&self) -> Vec<Weak<dyn Full>> {
        if !self.has_full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut full = self.full.lock();
        self.has_full.store(false, Ordering::Release);
        full.drain().map(|(_, queue)| queue).collect()
    }

    /// How many messages wait.
    pub fn messages(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
