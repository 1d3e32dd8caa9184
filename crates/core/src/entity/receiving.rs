//! How messages are received and settled.

use std::sync::Arc;

use super::{Entry, SequenceNumber};
use crate::time::WallTime;
use crate::value::Value;

/// A receiver link. Unique in the life of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u64);

/// Proves a lock: the number of the lock, that of its session where there are sessions, and the sequence
/// number of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockToken(pub u128);

impl LockToken {
    /// The token of a message under a lock.
    pub fn new(lock: u64, number: SequenceNumber) -> Self {
        Self((u128::from(lock) << 64) | u128::from(number))
    }

    /// The number of the lock.
    pub fn lock(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The sequence number of the message.
    pub fn number(self) -> SequenceNumber {
        self.0 as u64
    }
}

/// Whether messages stay until they are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They stay, locked.
    PeekLock,
    /// They are gone when they are delivered; but see [`Entity::take`](super::Entity::take) for those whose
    /// bytes are in the store only.
    ReceiveAndDelete,
}

/// A message on its way to a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// With what to settle it.
    pub token: LockToken,
    /// The message, as it is while locked.
    pub entry: Entry,
    /// When the lock of the session or of the message ends. Without a lock: the time of delivery.
    pub locked_until: WallTime,
}

/// Application properties that a receiver changes when it settles.
pub type Changes = Vec<(Box<str>, Value)>;

/// How a message is settled.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done: it goes.
    Complete,
    /// In vain: it goes back to its old place, and counts as delivered once more.
    Abandon(Changes),
    /// It leaves the stream, and is received by its number only. It counts as delivered once more.
    Defer(Changes),
    /// It goes to the dead-letter sub-queue.
    DeadLetter {
        /// Why, in one word; `DeadLetterReason` from now on.
        reason: Option<Box<str>>,
        /// Why; `DeadLetterErrorDescription` from now on.
        description: Option<Box<str>>,
        /// What else is changed.
        changes: Changes,
    },
    /// Never looked at: it goes back to its old place and does not count.
    Release,
}

impl Outcome {
    /// Whether the message goes back to its old place.
    pub fn returns(&self) -> bool {
        matches!(self, Self::Abandon(_) | Self::Release)
    }
}

/// Which session a receiver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// This one, with or without messages.
    Session(Arc<str>),
    /// The one that is free and has waited longest.
    Next {
        /// How long to wait for one.
        until: WallTime,
    },
}

/// What is answered to a receiver that asks for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It holds this one.
    Now {
        /// The session.
        session: Arc<str>,
        /// When the lock ends.
        locked_until: WallTime,
    },
    /// It is told by [`Effects::granted`](super::Effects::granted) or
    /// [`Effects::timed_out`](super::Effects::timed_out), unless it closes.
    Waiting,
}
