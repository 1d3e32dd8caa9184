//! Messages that wait in all queues of a tenant together.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use barid_core::holder::Holder;
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
    /// Queues whose publishers wait for room in other queues, by whose these are.
    full: Mutex<HashMap<Whose, BySession>>,
    has_full: AtomicBool,
}

/// Queues by the ids of their sessions.
type BySession = HashMap<u64, Weak<dyn Full>>;

/// Whose queues together have no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Those of the tenant.
    Tenant,
    /// Those of one of its users.
    User(Address),
}

/// Where a user is in memory. Another user may be there later, whose queues are then checked once in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(usize);

impl From<&Arc<Holder>> for Whose {
    fn from(user: &Arc<Holder>) -> Self {
        Self::User(Address(Arc::as_ptr(user).addr()))
    }
}

impl Queued {
    /// Counts a change of one queue, from `before` to `after` (messages, bytes).
    pub fn count(&self, before: (usize, usize), after: (usize, usize)) {
        // Difference and addition both wrap around, so the sum is correct.
        self.messages.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.bytes.fetch_add(after.1.wrapping_sub(before.1), Ordering::Relaxed);
    }

    /// Registers a full queue, to be checked when any of these queues becomes shorter.
    pub fn note_full(&self, whose: Whose, session: u64, queue: Weak<dyn Full>) {
        self.full.lock().entry(whose).or_default().entry(session).or_insert(queue);
        self.has_full.store(true, Ordering::Release);
    }

    /// Checks the full queues that wait for room in any queue of the tenant, and those that wait for room in the queues of
    /// `user`. The caller holds none of the tenant's locks.
    pub fn look_for_room(&self, user: Option<&Arc<Holder>>) {
        if !self.has_full.load(Ordering::Acquire) {
            return;
        }
        let taken = {
            let mut full = self.full.lock();
            let taken = [Some(Whose::Tenant), user.map(Whose::from)];
            let taken = taken.map(|whose| whose.and_then(|whose| full.remove(&whose)));
            self.has_full.store(!full.is_empty(), Ordering::Release);
            taken
        };
        for queue in taken.into_iter().flatten().flat_map(BySession::into_values) {
            if let Some(queue) = queue.upgrade() {
                queue.look_for_room();
            }
        }
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
