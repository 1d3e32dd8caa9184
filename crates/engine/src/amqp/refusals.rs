//! Conversion of refusals of entities to errors of AMQP. No other module does this.

use barid_amqp::Error;
use barid_core::entity::Refusal;

/// Error conditions that Service Bus and its clients use.
pub mod condition {
    /// The entity, rule or sub-queue does not exist.
    pub const NOT_FOUND: &str = "amqp:not-found";
    /// The entity does not support the operation.
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    /// The broker does not support the operation.
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    /// There is no token, or it does not give the right.
    pub const UNAUTHORIZED: &str = "amqp:unauthorized-access";
    /// The bytes are not a message.
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    /// A quota is exceeded.
    pub const RESOURCE_LIMIT: &str = "amqp:resource-limit-exceeded";
    /// A message is too large.
    pub const SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    /// Another receiver holds the session.
    pub const SESSION_CANNOT_BE_LOCKED: &str = "com.microsoft:session-cannot-be-locked";
    /// The receiver does not hold the session, or no longer.
    pub const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
    /// The message is not locked with this token, or no longer.
    pub const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    /// The deferred or scheduled message does not exist.
    pub const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
    /// No session became free in time.
    pub const TIMEOUT: &str = "com.microsoft:timeout";
    /// The request cannot be understood.
    pub const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
    /// The broker ends a link for a reason other than an action of its client (AMQP 1.0, Transport, §2.8.17).
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    /// The request cannot be served at present: the disk takes nothing new, a shard is closed, or too many
    /// responses wait.
    pub const SERVER_BUSY: &str = "com.microsoft:server-busy";
    /// Clients may not send to the entity, or not receive from it, at present.
    pub const ENTITY_DISABLED: &str = "com.microsoft:entity-disabled";
    /// A rule with this name exists already.
    pub const ALREADY_EXISTS: &str = "com.microsoft:entity-already-exists";
}

/// Returns the error that a client is told for a refusal.
pub fn error_of(refusal: Refusal) -> Error {
    Error::new(condition_of(refusal), refusal.to_string())
}

/// Returns the error condition for a refusal.
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

/// Returns the status code of a `$management` response with this condition.
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

/// Returns the error for a request that needs a closed shard. Clients try again.
pub fn closed() -> Error {
    Error::new(condition::SERVER_BUSY, "The shard of the entity is closed: try again.")
}

/// Returns the error that ends a link to an entity whose shard was closed. Clients attach a new link. After
/// [`SERVER_BUSY`](condition::SERVER_BUSY) they would keep this one.
pub fn detached() -> Error {
    Error::new(condition::DETACH_FORCED, "The shard of the entity was closed: attach again.")
}

/// Returns the error for an entity whose `Status` does not allow what the client wants.
pub fn disabled(address: &str) -> Error {
    let text = format!("The messaging entity '{address}' is currently disabled.");
    Error::new(condition::ENTITY_DISABLED, text)
}

/// Returns the error for an entity that does not exist. Clients look for this text.
pub fn no_entity(address: &str) -> Error {
    Error::new(
        condition::NOT_FOUND,
        format!("The messaging entity '{address}' could not be found."),
    )
}
