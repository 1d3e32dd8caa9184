//! Reasons for which an exchange ends.

use thiserror::Error;

/// Reason for which an exchange ends without success. The text is for the log.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The message has not the form that RFC 5802 gives it.
    #[error("the SCRAM message is malformed")]
    Malformed,
    /// The message is longer than any that a client needs.
    #[error("the SCRAM message is too long")]
    TooLong,
    /// The client insists on channel binding.
    #[error("the client requires channel binding")]
    ChannelBinding,
    /// The client uses an extension that must not be ignored.
    #[error("the client requires an extension of SCRAM")]
    Extension,
    /// The user name is empty, or not encoded as it must be.
    #[error("the user name in the SCRAM message is invalid")]
    UserName,
    /// The client wants to act as another user.
    #[error("the client wants to act as another user")]
    OtherIdentity,
    /// The last message repeats another header than the first one had: somebody has changed a message.
    #[error("the header of the first SCRAM message has been changed on its way")]
    OtherHeader,
    /// The last message belongs to another exchange.
    #[error("the nonce is of another SCRAM exchange")]
    OtherNonce,
    /// The user is unknown, or the client does not know the password.
    #[error("the user or the password is wrong")]
    Proof,
}
