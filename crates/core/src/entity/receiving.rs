//! Receiving and settling of messages.

use std::sync::Arc;

use super::{Entry, SequenceNumber};
use crate::time::WallTime;
use crate::value::Value;

/// Identifies a receiver link; unique during the life of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u64);

/// Proves a lock. Consists of the number of the lock, which is that of the session where there are sessions, and the
/// sequence number of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockToken(pub u128);

impl LockToken {
    /// Creates the token of a message under a lock.
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

/// Receive mode: whether messages stay until they are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages stay, locked.
    PeekLock,
    /// Messages are removed when they are delivered; but see [`Entity::take`](super::Entity::take) for those whose
    /// bytes are in the store only.
    ReceiveAndDelete,
}

/// A message that is delivered to a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The token that settles the message.
    pub token: LockToken,
    /// The message, as it is while locked.
    pub entry: Entry,
    /// Time at which the lock of the session or of the message ends. Without a lock: the time of delivery.
    pub locked_until: WallTime,
}

/// Application properties that a receiver changes when it settles a message.
pub type Changes = Vec<(Box<str>, Value)>;

/// The way in which a message is settled.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Processed: the message is removed.
    Complete,
    /// Failed: the message returns to its place, and its delivery count is raised.
    Abandon(Changes),
    /// Deferred: the message leaves the stream and can be received by its sequence number only. Its delivery count is
    /// raised.
    Defer(Changes),
    /// Dead-lettered: the message moves to the dead-letter sub-queue.
    DeadLetter {
        /// The reason in one word, stored as `DeadLetterReason`.
        reason: Option<Box<str>>,
        /// The explanation, stored as `DeadLetterErrorDescription`.
        description: Option<Box<str>>,
        /// Other changed properties.
        changes: Changes,
    },
    /// Not processed: the message returns to its place, and its delivery count is not raised.
    Release,
}

impl Outcome {
    /// Whether the message returns to its place.
    pub fn returns(&self) -> bool {
        matches!(self, Self::Abandon(_) | Self::Release)
    }
}

/// The session that a receiver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// The session with this id, with or without messages.
    Session(Arc<str>),
    /// The free session that has waited longest.
    Next {
        /// The time until which to wait for a free session.
        until: WallTime,
    },
}

/// The answer to a receiver that asks for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The receiver holds a session.
    Now {
        /// The session.
        session: Arc<str>,
        /// Time at which the lock ends.
        locked_until: WallTime,
    },
    /// The receiver waits for [`Effects::granted`](super::Effects::granted) or
    /// [`Effects::timed_out`](super::Effects::timed_out), unless it closes.
    Waiting,
}
