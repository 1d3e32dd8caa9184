//! Who receives from an entity, and how it is told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_core::entity::ReceiverId;
use barid_core::time::WallTime;
use hashbrown::HashMap;

use crate::sync::Mutex;

/// What a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is something to take. Said once, until it has taken less than it wanted again.
    Ready,
    /// It waited for a session and holds this one now.
    Granted {
        /// The session.
        session: Arc<str>,
        /// When the lock ends.
        locked_until: WallTime,
    },
    /// No session came free in its time. It is closed.
    TimedOut,
    /// The lock of its session has expired. It is closed.
    LockLost,
    /// The entity has been deleted. It is closed.
    Deleted,
    /// The shard of the entity was closed, and with it the receiver. Another may be opened when the shard is open again.
    Closed,
    /// Bodies that it has [asked for](super::Queue::fetch_bodies), in the order in which it asked:
    /// with each the tag that it gave. `None`: the message cannot be read back any more, and is lost.
    Bodies(Vec<(u64, Option<Arc<[u8]>>)>),
}

/// Where receivers are told. Told by any thread, without locks of entities; returns at once.
pub trait Inbox: Send + Sync {
    /// Something has happened to a receiver. It may have closed meanwhile.
    fn tell(&self, receiver: ReceiverId, what: Told);
}

/// A number that no receiver has had since the process began.
pub fn new_receiver_id() -> ReceiverId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ReceiverId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The inboxes of an entity's receivers; `None`: the entity has been deleted, or its shard closed.
pub(super) struct Receivers(Mutex<Option<HashMap<ReceiverId, Arc<dyn Inbox>>>>);

impl Default for Receivers {
    fn default() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }
}

impl Receivers {
    /// False: it has [ended](Self::end), and nobody will be told anything.
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

    /// Tells each what there is for it.
    pub(super) fn tell(&self, told: impl IntoIterator<Item = (ReceiverId, Told)>) {
        for (receiver, what) in told {
            let inbox = self.0.lock().as_ref().and_then(|all| all.get(&receiver).cloned());
            if let Some(inbox) = inbox {
                inbox.tell(receiver, what);
            }
        }
    }

    /// Tells all of them for the last time.
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
