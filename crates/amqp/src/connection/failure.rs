use crate::Error;
use crate::frame::Malformed;

/// Why a connection cannot go on. All are the peer's fault, and the peer has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer does not begin with the header of AMQP 1.0 or of SASL.
    #[error("unknown protocol header")]
    Header,
    /// A frame is longer than was announced.
    #[error("a frame of {length} bytes is too long")]
    FrameTooLong {
        /// What the frame says, in bytes.
        length: usize,
    },
    /// Bytes that are no AMQP.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A frame that must not come now, or there.
    #[error("not allowed: {0}")]
    NotAllowed(&'static str),
    /// A number beyond what was announced.
    #[error("{0} is beyond what was announced")]
    OutOfBounds(&'static str),
    /// Unfinished messages are too long together.
    #[error("too many bytes of unfinished messages")]
    TooMuchUnfinished,
    /// More sessions than the limits allow.
    #[error("too many sessions: end some, or open another connection")]
    TooManySessions,
    /// More links than the limits allow, and refused ones that the peer does not detach.
    #[error("too many links: detach those that were refused, or open another connection")]
    TooManyLinks,
}

impl Failure {
    /// What the peer is told.
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
