//! What an entity is like.

use std::time::Duration;

/// The properties of a queue or of a subscription, and its limits. Each limit is for one entity, all of its
/// parts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Whether every message belongs to a session and is received under the lock of its session. Fixed
    /// when the entity is made.
    pub requires_session: bool,
    /// How long a session or a message stays locked without renewal.
    pub lock_duration: Duration,
    /// A message that was delivered in vain so many times is dead-lettered. At least 1.
    pub max_delivery_count: u32,
    /// The longest time to live, and that of messages without their own.
    pub default_time_to_live: Option<Duration>,
    /// Whether messages that expire are dead-lettered; otherwise they are dropped.
    pub dead_lettering_on_expiration: bool,
    /// For how long the ids of messages are kept, so that a message that is sent again is dropped.
    pub duplicate_detection: Option<Duration>,
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of messages and of states, each with what is kept beside it:
    /// [`MESSAGE_OVERHEAD`](super::MESSAGE_OVERHEAD) and its like.
    pub max_bytes: usize,
    /// The most bytes of one message, and of one session's state.
    pub max_message_size: usize,
    /// The most sessions at a time: those with a message, a state, or a lock.
    pub max_sessions: usize,
}
