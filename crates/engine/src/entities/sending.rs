//! Sending of messages: into queues, through topics, and onward from entities that forward.

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

/// Maximum number of times that a message is forwarded. An entity that would have to forward it once more puts it
/// into its transfer dead-letter queue.
pub const HOPS_MAX: u8 = 4;

/// Maximum number of copies that the subscriptions of a topic get of a batch of more than one message: a batch goes
/// to all of them, or to none, in one step. A batch with more copies is refused as [`SendError::TooManyCopies`].
pub const COPIES_MAX: usize = 15_000;

/// The annotation of a stored message that is to be moved on, with the number of times that it was forwarded.
const HOPS: &str = "x-opt-forwarded";

/// Messages that are sent together.
pub type Batch = SmallVec<[Incoming; 1]>;

/// Sequence numbers of messages that were sent together, in their order. The number is 0 for a message that has
/// none here because it was a duplicate, went through a topic, or could not be forwarded.
pub type Numbers = SmallVec<[SequenceNumber; 1]>;

/// Reason for which messages are not accepted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendError {
    /// An entity refuses one of the messages.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// All entities of the tenant together have no room.
    #[error("the tenant's queues and subscriptions have no room (max_tenant_entity_bytes)")]
    TenantFull,
    /// The entity has been deleted.
    #[error("the entity has been deleted")]
    Gone,
    /// Clients may not send to the entity at present.
    #[error("the entity is disabled (Status)")]
    Disabled,
    /// The disk is full or broken, or the shard is closed.
    #[error("the broker cannot store messages for now")]
    NotStored,
    /// The bytes of a message are malformed.
    #[error("the message is not well-formed")]
    Malformed,
    /// The evaluation of the subscriptions' rules would keep the broker busy for too long.
    #[error(
        "the rules of the topic's subscriptions cost too much for so many or such large properties: send fewer \
         messages at a time, or with shorter properties, or use simpler rules"
    )]
    TooMuchWork,
    /// The subscriptions of a topic would get too many copies at once.
    #[error(
        "the topic's subscriptions would get more than {COPIES_MAX} copies: send fewer messages at a time"
    )]
    TooManyCopies,
}

/// The way of messages to an entity: their hop count, and whether each queue takes them only once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way<'a> {
    /// Hop count: number of times that the messages were forwarded.
    pub(super) hops: u8,
    /// Set for a single message that each queue takes once.
    pub(super) once: Option<&'a Once>,
}

impl Way<'_> {
    /// Returns the way of messages that were forwarded `hops` times.
    pub(super) fn forwarded(hops: u8) -> Self {
        Self { hops, once: None }
    }
}

impl Node {
    /// Sends messages, all or none. An answer that reports acceptance must wait for `commits`.
    ///
    /// A message that cannot be forwarded is accepted nevertheless: it is put into the transfer dead-letter queue
    /// of the entity that should have forwarded it.
    ///
    /// # Errors
    /// [`SendError`] if an entity does not accept one of them. Messages that were forwarded before the error stay
    /// at their targets.
    pub fn send(
        &self,
        messages: Batch,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        self.send_by(messages, Way::default(), now, commits)
    }

    /// Sends a message that may have been sent before the process last ended: queues that have it skip it.
    /// Otherwise like [`send`](Self::send).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
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
        if !self.entity().status().may_send() {
            return Err(SendError::Disabled);
        }
        // Checked where messages enter. What is forwarded later is in the tenant already, and must not be refused.
        if !self.entity().tenant_has_room(messages.iter().map(Incoming::footprint).sum()) {
            return Err(SendError::TenantFull);
        }
        self.put(messages, way, now, commits)
    }

    /// Whether a shard that messages can reach from here stores nothing new at the moment.
    pub fn refuses(&self) -> bool {
        self.reaches_any(DurableShard::refuses)
    }

    /// Whether messages can reach a closed shard from here.
    pub fn reaches_closed(&self) -> bool {
        self.reaches_any(|shard| !shard.is_open())
    }

    /// Whether messages can reach a shard from here for which `is_such` is true. It may be true only for shards
    /// that take nothing new.
    fn reaches_any(&self, is_such: fn(&DurableShard) -> bool) -> bool {
        self.entity().shards().any_refuses() && self.reaches_within(HOPS_MAX, is_such)
    }

    /// Like [`reaches_any`](Self::reaches_any), for messages that can be forwarded `hops` more times.
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

    /// Sends messages that came by `way`.
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

/// Returns the key of the entity to which messages for an entity are forwarded at once. `None` if the entity
/// detects duplicates: an id must become durable in one batch with its message, so the message is stored first and
/// moved later.
pub(super) fn direct_target(configured: &Configured) -> Option<&str> {
    let is_direct = !configured.properties.requires_duplicate_detection
        && configured.topic_properties().is_none();
    configured.forwards_to.as_deref().filter(|_| is_direct)
}

/// Messages that an entity forwards to another.
pub(super) struct Forward<'a> {
    /// The entity that forwards.
    pub(super) from: &'a Arc<Queue>,
    /// The key of the target.
    pub(super) target: &'a str,
    /// The way of the messages to the entity that forwards.
    pub(super) way: Way<'a>,
    /// The messages.
    pub(super) messages: &'a [Incoming],
}

/// Reason for which a message is not forwarded.
pub(super) enum NotForwarded {
    /// The shard of the target is closed at the moment.
    Later,
    /// The message cannot be forwarded: the reason and the description of its dead letter.
    Never(&'static str, String),
}

impl Forward<'_> {
    /// Forwards a message, or puts it into the transfer dead-letter queue of the entity that forwards.
    ///
    /// # Errors
    /// [`SendError::Refused`] if that queue has no room, [`SendError::NotStored`] if the shard of the target is
    /// closed.
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

    /// Forwards a message.
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
        SendError::Refused(Refusal::QuotaExceeded) | SendError::TenantFull => "QuotaExceeded",
        SendError::Refused(Refusal::MessageTooLarge) => "MessageSizeExceeded",
        SendError::Gone => "MessagingEntityNotFound",
        SendError::Refused(_)
        | SendError::Disabled
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

/// Returns the number of times that a stored message was forwarded.
pub(super) fn hops(overlay: Option<&Overlay>) -> u8 {
    match overlay.and_then(|overlay| overlay.get(Scope::Annotation, HOPS)) {
        Some(Value::Long(hops)) => u8::try_from(*hops).unwrap_or(HOPS_MAX),
        _ => 0,
    }
}
