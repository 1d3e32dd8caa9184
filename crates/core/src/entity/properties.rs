//! Properties of an entity.

use std::time::Duration;

/// The properties of a queue or of a subscription, and its limits. Each limit is for one entity, all of its parts
/// together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Whether every message belongs to a session and is received under the lock of its session. Fixed when the entity
    /// is created.
    pub requires_session: bool,
    /// Duration for which a session or a message stays locked without renewal.
    pub lock_duration: Duration,
    /// Delivery count at which a message is dead-lettered. At least 1.
    pub max_delivery_count: u32,
    /// Maximum time to live, which is also that of messages without their own.
    pub default_time_to_live: Option<Duration>,
    /// Whether expired messages are dead-lettered; otherwise they are dropped.
    pub dead_lettering_on_expiration: bool,
    /// Duration for which the ids of messages are kept, so that a message that is sent again is dropped.
    pub duplicate_detection: Option<Duration>,
    /// Maximum number of messages.
    pub max_messages: usize,
    /// Maximum number of bytes of messages and states, each with its overhead:
    /// [`MESSAGE_OVERHEAD`](super::MESSAGE_OVERHEAD) and the like.
    pub max_bytes: usize,
    /// Maximum size of one message, and of one session's state, in bytes.
    pub max_message_size: usize,
    /// Maximum number of sessions at a time: those with a message, a state, or a lock.
    pub max_sessions: usize,
}
