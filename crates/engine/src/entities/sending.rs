//! The way of a message into queues: through topics, and on from what forwards it.

use std::sync::Arc;

use barid_core::entity::{Incoming, Overlay, Part, Refusal, SequenceNumber};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use smallvec::SmallVec;
use thiserror::Error;

use super::configured::Configured;
use super::once::Once;
use super::queue::Queue;
use super::registry::Node;
use crate::durable::{Commits, DurableShard};

/// How often a message is forwarded at most.
pub const HOPS_MAX: u8 = 4;

/// Copies of a batch that the subscriptions of a topic get, if there are more than one of each message: a batch
/// goes to all of them, or to none, in one step.
pub const COPIES_MAX: usize = 15_000;

/// The annotation of a message that was moved on, with how often it was forwarded.
const HOPS: &str = "x-opt-forwarded";

/// Messages that are sent together.
pub type Batch = SmallVec<[Incoming; 1]>;

/// The sequence numbers of messages that were sent together, in their order. 0: the message has none here,
/// because it was a duplicate, or went through a topic, or could not be forwarded.
pub type Numbers = SmallVec<[SequenceNumber; 1]>;

/// Why messages are not taken. None of them is, then.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendError {
    /// An entity refuses one of them.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The entity has been deleted.
    #[error("the entity has been deleted")]
    Gone,
    /// The disk is full or broken.
    #[error("the broker cannot store messages for now")]
    NotStored,
    /// The bytes of a message are none.
    #[error("the message is not well-formed")]
    Malformed,
    /// The rules of a topic's subscriptions would keep the broker busy for too long.
    #[error(
        "the rules of the topic's subscriptions cost too much for so many or such large properties: send fewer \
         messages at a time, or with shorter properties, or use simpler rules"
    )]
    TooMuchWork,
    /// A topic's subscriptions would get too many copies at once.
    #[error(
        "the topic's subscriptions would get more than {COPIES_MAX} copies: send fewer messages at a time"
    )]
    TooManyCopies,
}

/// How messages have come to an entity.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way<'a> {
    /// So often they were forwarded.
    pub(super) hops: u8,
    /// It is one message, and each queue takes it once.
    pub(super) once: Option<&'a Once>,
}

impl Way<'_> {
    /// They were forwarded so often.
    pub(super) fn forwarded(hops: u8) -> Self {
        Self { hops, once: None }
    }
}

impl Node {
    /// Sends messages, all or none. Whoever is told that they are accepted has to wait for `commits`.
    ///
    /// What cannot be forwarded is in the transfer dead-letter queue of the entity that it should have been
    /// forwarded from, and accepted nevertheless.
    ///
    /// # Errors
    /// [`SendError`] if an entity does not take one of them.
    pub fn send(
        &self,
        messages: Batch,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        self.send_by(messages, Way::default(), now, commits)
    }

    /// Sends a message, which may have been sent before the process last ended: queues that have it are left out. Otherwise
    /// as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_once(
        &self,
        message: Incoming,
        once: &Once,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<(), SendError> {
        let way = Way { hops: 0, once: Some(once) };
        self.send_by(SmallVec::from_buf([message]), way, now, commits).map(drop)
    }

    fn send_by(
        &self,
        messages: Batch,
        way: Way<'_>,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        if self.refuses() {
            return Err(SendError::NotStored);
        }
        self.put(messages, way, now, commits)
    }

    /// Whether nothing new can be stored for now where messages may get to from here.
    pub fn refuses(&self) -> bool {
        self.reaches_any(DurableShard::refuses)
    }

    /// Whether messages may get from here to where a shard is closed.
    pub fn reaches_closed(&self) -> bool {
        self.reaches_any(|shard| !shard.is_open())
    }

    /// Whether messages may get from here to such a shard, which is one that takes nothing new.
    fn reaches_any(&self, is_such: fn(&DurableShard) -> bool) -> bool {
        self.entity().shards().any_refuses() && self.reaches_within(HOPS_MAX, is_such)
    }

    /// The same, if they may still be forwarded so often.
    fn reaches_within(&self, hops: u8, is_such: fn(&DurableShard) -> bool) -> bool {
        let target_is_such = |queue: &Arc<Queue>| {
            let configured = queue.configured();
            let target = direct_target(&configured).filter(|_| hops > 0);
            let node = target.and_then(|target| queue.entities()?.find_key(target));
            node.is_some_and(|node| node.reaches_within(hops - 1, is_such))
        };
        is_such(self.entity().shard())
            || match self {
                Self::Queue(queue) => target_is_such(queue),
                Self::Topic(topic) => topic.subscriptions().iter().any(target_is_such),
            }
    }

    /// Sends messages that have come so far.
    pub(super) fn put(
        &self,
        messages: Batch,
        way: Way<'_>,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        let queue = match self {
            Self::Topic(topic) => return topic.put(messages, way, now, commits),
            Self::Queue(queue) => queue,
        };
        let configured = queue.configured();
        let Some(target) = direct_target(&configured) else {
            let counted = configured.forwards_to.is_some() && way.hops > 0;
            let messages = if counted { with_hops(messages, way.hops) } else { messages };
            return queue.put(messages, way, now, commits);
        };
        let forward = Forward { from: queue, target, way, messages: &messages };
        messages.iter().map(|message| forward.send(message, now, commits)).collect()
    }
}

/// Where messages for an entity go at once. Not if it detects duplicates: an id must become durable in one
/// batch with its message, so the message is stored first and moved on later.
pub(super) fn direct_target(configured: &Configured) -> Option<&str> {
    let is_direct = !configured.properties.requires_duplicate_detection
        && configured.topic_properties().is_none();
    configured.forwards_to.as_deref().filter(|_| is_direct)
}

/// Messages on their way from an entity to the one that it forwards to.
pub(super) struct Forward<'a> {
    /// From here.
    pub(super) from: &'a Arc<Queue>,
    /// To the entity with this key.
    pub(super) target: &'a str,
    /// How they have come.
    pub(super) way: Way<'a>,
    /// Those that go.
    pub(super) messages: &'a [Incoming],
}

/// Why a message is not forwarded.
pub(super) enum NotForwarded {
    /// The shard of the target is closed for now.
    Later,
    /// It cannot be: the reason of a dead letter, and more words.
    Never(&'static str, String),
}

impl Forward<'_> {
    /// Sends one on, or into the transfer dead-letter queue of where it comes from.
    ///
    /// # Errors
    /// That has no room, either; or the shard of the target is closed.
    pub(super) fn send(
        &self,
        message: &Incoming,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<SequenceNumber, SendError> {
        let (reason, description) = match self.try_send(message, now, commits) {
            Ok(number) => return Ok(number),
            Err(NotForwarded::Later) => return Err(SendError::NotStored),
            Err(NotForwarded::Never(reason, description)) => (reason, description),
        };
        let (part, message) = (Part::TransferDeadLetter, message.clone());
        self.from.take_once(self.way.once, commits, |entity, fx| {
            entity.dead_letter_incoming(part, message, reason, &description, now, fx)
        })?;
        Ok(0)
    }

    /// Sends one on.
    pub(super) fn try_send(
        &self,
        message: &Incoming,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<SequenceNumber, NotForwarded> {
        let way = Way { hops: self.way.hops + 1, ..self.way };
        if way.hops > HOPS_MAX {
            let description = format!("A message is forwarded {HOPS_MAX} times at most.");
            return Err(NotForwarded::Never("MaxTransferHopCountExceeded", description));
        }
        let entities = self.from.entities();
        let Some(node) = entities.and_then(|entities| entities.find_key(self.target)) else {
            let description = format!("The messaging entity '{}' could not be found.", self.target);
            return Err(NotForwarded::Never("MessagingEntityNotFound", description));
        };
        let message = SmallVec::from_buf([message.clone()]);
        node.put(message, way, now, commits).map(|numbers| numbers[0]).map_err(failure)
    }
}

fn failure(error: SendError) -> NotForwarded {
    let reason = match error {
        SendError::NotStored => return NotForwarded::Later,
        SendError::Refused(Refusal::SessionIdMissing) => "Session ID is null",
        SendError::Refused(Refusal::QuotaExceeded) => "QuotaExceeded",
        SendError::Refused(Refusal::MessageTooLarge) => "MessageSizeExceeded",
        SendError::Gone => "MessagingEntityNotFound",
        SendError::Refused(_)
        | SendError::Malformed
        | SendError::TooMuchWork
        | SendError::TooManyCopies => "ForwardingFailed",
    };
    NotForwarded::Never(reason, error.to_string())
}

fn with_hops(mut messages: Batch, hops: u8) -> Batch {
    for message in &mut messages {
        let mut overlay: Overlay = message.overlay.as_deref().cloned().unwrap_or_default();
        overlay.set(Scope::Annotation, HOPS, Value::Long(hops.into()));
        message.overlay = Some(Arc::new(overlay));
    }
    messages
}

/// How often a stored message was forwarded.
pub(super) fn hops(overlay: Option<&Overlay>) -> u8 {
    match overlay.and_then(|overlay| overlay.get(Scope::Annotation, HOPS)) {
        Some(Value::Long(hops)) => u8::try_from(*hops).unwrap_or(HOPS_MAX),
        _ => 0,
    }
}
