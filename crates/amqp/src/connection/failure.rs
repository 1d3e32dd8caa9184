use crate::Error;
use crate::frame::Malformed;

/// Reason why a connection cannot go on. Every failure is the peer's fault, and the peer has been
/// told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer did not begin with the protocol header of AMQP 1.0 or of SASL.
    #[error("unknown protocol header")]
    Header,
    /// A frame is longer than the announced maximum.
    #[error("a frame of {length} bytes is too long")]
    FrameTooLong {
        /// Length that the frame's header states, in bytes.
        length: usize,
    },
    /// Bytes that are not valid AMQP.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A frame that is not allowed in this state, or at this place.
    #[error("not allowed: {0}")]
    NotAllowed(&'static str),
    /// A number beyond the announced maximum.
    #[error("{0} is beyond what was announced")]
    OutOfBounds(&'static str),
    /// The unfinished messages of all links together are too long.
    #[error("too many bytes of unfinished messages")]
    TooMuchUnfinished,
    /// More sessions than the limits allow.
    #[error("too many sessions: end some, or open another connection")]
    TooManySessions,
    /// More links than the limits allow, counting refused ones that the peer has not detached.
    #[error("too many links: detach those that were refused, or open another connection")]
    TooManyLinks,
}

impl Failure {
    /// Builds the error that is sent to the peer.
    pub(super) fn to_error(self) -> Error {
        let condition = match self {
            Self::Header | Self::FrameTooLong { .. } | Self::OutOfBounds(_) => {
                "amqp:connection:framing-error"
            }
            Self::Malformed(_) => "amqp:decode-error",
            Self::NotAllowed(_) => "amqp:not-allowed",
            Self::TooMuchUnfinished | Self::TooManySessions | Self::TooManyLinks => {
                "amqp:resource-limit-exceeded"
            }
        };
        Error::new(condition, self.to_string())
    }
}
