//! Refusals of entities as errors of AMQP. The one place where the two meet.

use barid_amqp::Error;
use barid_core::entity::Refusal;

/// Conditions that Service Bus and its clients know.
pub mod condition {
    /// There is no such entity, rule or sub-queue.
    pub const NOT_FOUND: &str = "amqp:not-found";
    /// What the entity is not made for.
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    /// Operations that do not exist here.
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    /// No token, or one without the right.
    pub const UNAUTHORIZED: &str = "amqp:unauthorized-access";
    /// Bytes that are no message.
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    /// A quota.
    pub const RESOURCE_LIMIT: &str = "amqp:resource-limit-exceeded";
    /// Too large.
    pub const SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    /// Somebody else has the session.
    pub const SESSION_CANNOT_BE_LOCKED: &str = "com.microsoft:session-cannot-be-locked";
    /// The session is not, or no longer, held.
    pub const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
    /// The message is not, or no longer, locked.
    pub const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    /// There is no such deferred or scheduled message.
    pub const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
    /// No session came free in time.
    pub const TIMEOUT: &str = "com.microsoft:timeout";
    /// A request that cannot be understood.
    pub const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
    /// A link ends for something that its client has not done (AMQP 1.0, Transport, §2.8.17).
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    /// The disk takes nothing new.
    pub const SERVER_BUSY: &str = "com.microsoft:server-busy";
    /// A rule with this name.
    pub const ALREADY_EXISTS: &str = "com.microsoft:entity-already-exists";
}

/// What a client is told of a refusal.
pub fn error_of(refusal: Refusal) -> Error {
    Error::new(condition_of(refusal), refusal.to_string())
}

/// The condition that says what a refusal says.
pub fn condition_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::SessionIdMissing
        | Refusal::SessionsRequired
        | Refusal::SessionsNotSupported
        | Refusal::DeadLetteredAlready => condition::NOT_ALLOWED,
        Refusal::IdTooLong | Refusal::TooManyChanges => condition::ARGUMENT_ERROR,
        Refusal::SessionCannotBeLocked => condition::SESSION_CANNOT_BE_LOCKED,
        Refusal::SessionLockLost => condition::SESSION_LOCK_LOST,
        Refusal::MessageLockLost => condition::MESSAGE_LOCK_LOST,
        Refusal::MessageNotFound => condition::MESSAGE_NOT_FOUND,
        Refusal::QuotaExceeded => condition::RESOURCE_LIMIT,
        Refusal::MessageTooLarge => condition::SIZE_EXCEEDED,
    }
}

/// The status code of an answer of a `$management` node with this condition.
pub fn status_of(condition: &str) -> u16 {
    match condition {
        condition::SESSION_LOCK_LOST | condition::MESSAGE_LOCK_LOST => 410,
        condition::NOT_FOUND | condition::MESSAGE_NOT_FOUND => 404,
        condition::UNAUTHORIZED => 401,
        condition::RESOURCE_LIMIT | condition::SIZE_EXCEEDED => 403,
        condition::ALREADY_EXISTS | condition::SESSION_CANNOT_BE_LOCKED => 409,
        condition::NOT_IMPLEMENTED => 501,
        condition::SERVER_BUSY => 503,
        _ => 400,
    }
}

/// The refusal of whatever needs what is in a closed shard. Clients try again.
pub fn closed() -> Error {
    Error::new(condition::SERVER_BUSY, "The shard of the entity is closed: try again.")
}

/// The end of a link to what is in a shard that was closed. Clients attach another one: after
/// [`SERVER_BUSY`](condition::SERVER_BUSY) they would go on with this one.
pub fn detached() -> Error {
    Error::new(condition::DETACH_FORCED, "The shard of the entity was closed: attach again.")
}

/// The refusal of an attach to what does not exist. Clients look for this text.
pub fn no_entity(address: &str) -> Error {
    Error::new(
        condition::NOT_FOUND,
        format!("The messaging entity '{address}' could not be found."),
    )
}
