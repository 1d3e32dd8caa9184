//! A message in an entity.

use std::sync::Arc;
use std::time::Duration;

use super::Overlay;
use crate::time::WallTime;

/// Where a message stands in its part. Counts up from 1, and no number is given twice.
pub type SequenceNumber = u64;

/// A message that an entity keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its place.
    pub number: SequenceNumber,
    /// The session it belongs to. It stays with a dead letter.
    pub session: Option<Arc<str>>,
    /// The sender's id of it.
    pub message_id: Option<Arc<str>>,
    /// The number it had in [`Part::Main`](super::Part::Main) last.
    pub enqueued_number: SequenceNumber,
    /// When it got that number.
    pub enqueued_at: WallTime,
    /// When it expires, if ever. Not observed while it is locked, deferred, or a dead letter.
    pub expires_at: Option<WallTime>,
    /// Delivery count: how many deliveries from [`Part::Main`](super::Part::Main) were abandoned or deferred, or
    /// ended with their lock.
    pub delivery_count: u32,
    /// What it waits for.
    pub state: State,
    /// Its bytes.
    pub body: Body,
    /// What was changed of it since it came.
    pub overlay: Option<Arc<Overlay>>,
}

/// What a message waits for. Whether it is locked is not part of it: locks end with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// For a receiver.
    Active,
    /// For a receiver that asks for it by its number.
    Deferred,
    /// For the time at which it becomes active, with a new number.
    Scheduled {
        /// That time.
        at: WallTime,
    },
}

/// The encoded message, byte for byte as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Unique in the entity: the first number that the message had in [`Part::Main`](super::Part::Main).
    pub id: u64,
    /// How many bytes.
    pub size: u32,
    /// The bytes; None: they are in the store only.
    pub bytes: Option<Arc<[u8]>>,
}

/// A message that is sent to an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The session it belongs to.
    pub session: Option<Arc<str>>,
    /// The sender's id of it.
    pub message_id: Option<Arc<str>>,
    /// How long it is to live from when it is enqueued; the entity's default may be shorter.
    pub time_to_live: Option<Duration>,
    /// When it is to be enqueued, if that is later than now.
    pub scheduled_at: Option<WallTime>,
    /// The encoded message.
    pub bytes: Arc<[u8]>,
    /// What was changed of it on its way here.
    pub overlay: Option<Arc<Overlay>>,
}

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It waits for a receiver.
    Enqueued(SequenceNumber),
    /// It waits for its time. The number is good for cancelling only.
    Scheduled(SequenceNumber),
    /// One with the same id was sent before: nothing was kept.
    Duplicate,
}
