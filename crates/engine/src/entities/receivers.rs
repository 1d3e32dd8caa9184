//! Receivers of an entity, and their notifications.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_core::entity::ReceiverId;
use barid_core::time::WallTime;
use hashbrown::HashMap;

use crate::sync::Mutex;

/// A notification of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is a message to take. Sent once, and again only after the receiver has taken less than it wanted
    /// again.
    Ready,
    /// The receiver, which waited for a session, now holds this one.
    Granted {
        /// The session.
        session: Arc<str>,
        /// Time at which the lock ends.
        locked_until: WallTime,
    },
    /// No session became free in time. The receiver is closed.
    TimedOut,
    /// The lock on the receiver's session has expired. The receiver is closed.
    LockLost,
    /// The entity has been deleted. The receiver is closed.
    Deleted,
    /// The shard of the entity was closed, and the receiver with it. A new receiver can be opened when the shard is
    /// open again.
    Closed,
    /// Clients may not receive from the entity any more. The receiver is closed by its owner.
    Disabled,
    /// Bodies that the receiver has [requested](super::Queue::fetch_bodies), in the order of the request, each with
    /// its tag. `None`: the body cannot be read back any more, and the message is lost.
    Bodies(Vec<(u64, Option<Arc<[u8]>>)>),
}

/// The destination of notifications of receivers. Called by any thread, without locks of entities held; returns at
/// once.
pub trait Inbox: Send + Sync {
    /// Notifies a receiver. It may have been closed in the meantime.
    fn tell(&self, receiver: ReceiverId, what: Told);
}

/// Returns an id that no receiver has had since the process started.
pub fn new_receiver_id() -> ReceiverId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ReceiverId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The inboxes of an entity's receivers. `None`: the entity has been deleted, or its shard closed.
pub(super) struct Receivers(Mutex<Option<HashMap<ReceiverId, Arc<dyn Inbox>>>>);

impl Default for Receivers {
    fn default() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }
}

impl Receivers {
    /// Adds a receiver. Returns false after [`end`](Self::end): the receiver would never be notified.
    pub(super) fn add(&self, receiver: ReceiverId, inbox: Arc<dyn Inbox>) -> bool {
        let mut receivers = self.0.lock();
        receivers.as_mut().map(|receivers| receivers.insert(receiver, inbox)).is_some()
    }

    pub(super) fn remove(&self, receiver: ReceiverId) {
        if let Some(receivers) = &mut *self.0.lock() {
            receivers.remove(&receiver);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().as_ref().map_or(0, HashMap::len)
    }

    /// Sends each receiver its notifications.
    pub(super) fn tell(&self, told: impl IntoIterator<Item = (ReceiverId, Told)>) {
        for (receiver, what) in told {
            let inbox = self.0.lock().as_ref().and_then(|all| all.get(&receiver).cloned());
            if let Some(inbox) = inbox {
                inbox.tell(receiver, what);
            }
        }
    }

    /// Sends a notification to all receivers.
    pub(super) fn tell_all(&self, what: &Told) {
        let all: Vec<_> =
            self.0.lock().iter().flatten().map(|(id, one)| (*id, Arc::clone(one))).collect();
        for (receiver, inbox) in all {
            inbox.tell(receiver, what.clone());
        }
    }

    /// Sends a last notification to all receivers, and removes them.
    pub(super) fn end(&self, why: &Told) {
        let all = self.0.lock().take().unwrap_or_default();
        for (receiver, inbox) in all {
            inbox.tell(receiver, why.clone());
        }
    }
}

impl fmt::Debug for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receivers").field(&self.len()).finish()
    }
}
