//! A message in an entity.

use std::sync::Arc;
use std::time::Duration;

use super::Overlay;
use crate::time::WallTime;

/// The place of a message in its part. Counts up from 1; no number is assigned twice.
pub type SequenceNumber = u64;

/// A message in an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The sequence number.
    pub number: SequenceNumber,
    /// The session that the message belongs to. A dead letter keeps it.
    pub session: Option<Arc<str>>,
    /// The message id that the sender has set.
    pub message_id: Option<Arc<str>>,
    /// The last number that the message had in [`Part::Main`](super::Part::Main).
    pub enqueued_number: SequenceNumber,
    /// Time at which the message got that number.
    pub enqueued_at: WallTime,
    /// Time at which the message expires, if ever. Ignored while the message is locked, deferred, or a dead letter.
    pub expires_at: Option<WallTime>,
    /// Delivery count: how many deliveries from [`Part::Main`](super::Part::Main) were abandoned or deferred, or
    /// ended with their lock.
    pub delivery_count: u32,
    /// The state of the message.
    pub state: State,
    /// The encoded message.
    pub body: Body,
    /// The properties changed since the message was received.
    pub overlay: Option<Arc<Overlay>>,
}

/// The state of a message. Locks are not part of it: they end with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a receiver.
    Active,
    /// Waits for a receiver that asks for its sequence number.
    Deferred,
    /// Waits for the time at which it becomes active, with a new number.
    Scheduled {
        /// The time at which the message becomes active.
        at: WallTime,
    },
}

/// The encoded message, byte for byte as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The id of the body, unique in the entity: the first number that the message had in
    /// [`Part::Main`](super::Part::Main).
    pub id: u64,
    /// Size in bytes.
    pub size: u32,
    /// The bytes; `None` if they are in the store only.
    pub bytes: Option<Arc<[u8]>>,
}

/// A message that is sent to an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The session that the message belongs to.
    pub session: Option<Arc<str>>,
    /// The message id that the sender has set.
    pub message_id: Option<Arc<str>>,
    /// Time to live from when the message is enqueued; the entity's default may be shorter.
    pub time_to_live: Option<Duration>,
    /// Time at which the message is to be enqueued, if that is later than now.
    pub scheduled_at: Option<WallTime>,
    /// The encoded message.
    pub bytes: Arc<[u8]>,
    /// The properties changed on the way to this entity.
    pub overlay: Option<Arc<Overlay>>,
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message waits for a receiver.
    Enqueued(SequenceNumber),
    /// The message waits for its time. The number can only be used to cancel it.
    Scheduled(SequenceNumber),
    /// A message with the same id was sent before; this one was dropped.
    Duplicate,
}
