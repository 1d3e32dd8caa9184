//! Errors of an entity.

use thiserror::Error;

/// Reason for which an entity refuses a command. Nothing has changed then.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A message without session id for an entity that requires sessions. An empty session id is valid.
    #[error(
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have \
         session support enabled can only receive messages that have the SessionId set to a valid value."
    )]
    SessionIdMissing,
    /// A session id or message id of more than [`ID_LEN_MAX`](super::ID_LEN_MAX) bytes.
    #[error("The SessionId or MessageId is too long.")]
    IdTooLong,
    /// A plain receiver on an entity that requires sessions.
    #[error(
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
    )]
    SessionsRequired,
    /// A session receiver on an entity without sessions.
    #[error(
        "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure \
         RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
    )]
    SessionsNotSupported,
    /// Another receiver holds the session.
    #[error("The requested session cannot be accepted. It may be locked by another receiver.")]
    SessionCannotBeLocked,
    /// The receiver does not hold the session, or no longer.
    #[error("The session lock has expired on the MessageSession. Accept a new MessageSession.")]
    SessionLockLost,
    /// The message is not locked with this token, or no longer.
    #[error(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from \
         the queue."
    )]
    MessageLockLost,
    /// There is no deferred or scheduled message with this number, or it is locked.
    #[error("The message with the given sequence number was not found.")]
    MessageNotFound,
    /// The message is in a dead-letter sub-queue already.
    #[error("A message in a dead-letter queue cannot be dead-lettered.")]
    DeadLetteredAlready,
    /// A settlement that would change more of a message than [`CHANGED_MAX`](super::CHANGED_MAX) allows.
    #[error("The properties that are to be modified are too many or too long.")]
    TooManyChanges,
    /// The entity has reached its limit of messages, bytes or sessions.
    #[error("The maximum entity size has been reached or exceeded.")]
    QuotaExceeded,
    /// A message or a state that is too large.
    #[error("The message or session state is larger than the entity allows.")]
    MessageTooLarge,
}
