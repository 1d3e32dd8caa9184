//! Why an entity refuses.

use thiserror::Error;

/// Why an entity does not do what it is asked to. Nothing has changed then.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A message without session id for an entity that requires sessions. An empty id is one.
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
    /// Somebody else holds the session.
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
    /// There is no message with this number that is deferred, or scheduled, and not locked.
    #[error("The message with the given sequence number was not found.")]
    MessageNotFound,
    /// The message is in a dead-letter sub-queue already.
    #[error("A message in a dead-letter queue cannot be dead-lettered.")]
    DeadLetteredAlready,
    /// A settlement that would change more of a message than [`CHANGED_MAX`](super::CHANGED_MAX) allows.
    #[error("The properties that are to be modified are too many or too long.")]
    TooManyChanges,
    /// The entity has its most messages, bytes or sessions.
    #[error("The maximum entity size has been reached or exceeded.")]
    QuotaExceeded,
    /// A message, or a state, of too many bytes.
    #[error("The message or session state is larger than the entity allows.")]
    MessageTooLarge,
}
