//! What can be wrong with a frame, and with a broker that opens a link.

use std::borrow::Cow;

use thiserror::Error;

/// Length of a nonce, in bytes.
pub const NONCE: usize = 32;

/// Length of a proof, in bytes.
pub const PROOF: usize = 32;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// A field is missing or cut off.
    #[error("a frame ends within a field")]
    CutOff,
    /// Bytes follow the last field.
    #[error("bytes follow the last field of a frame")]
    TooLong,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotText,
    /// A frame is longer than it may be here.
    #[error("a frame of {0} bytes is longer than the maximum")]
    TooLarge(usize),
    /// The kind of the frame is not known.
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    /// A field has a value that it cannot have.
    #[error("a field has an impossible value")]
    Value,
    /// The frame is not allowed at this point of the link.
    #[error("a frame that is not allowed here")]
    Unexpected,
}

/// Why a broker refuses a link. What the other one is told.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The two speak no common version of the protocol; contains those of the broker that refuses.
    #[error(
        "the versions of the protocol between brokers differ, and the one that refuses speaks {0}"
    )]
    Version(String),
    /// The broker that refuses belongs to another cluster, of this name.
    #[error("it belongs to the cluster {0:?}")]
    OtherCluster(String),
    /// The proof is wrong: the secrets differ.
    #[error("its secret is another one")]
    Secret,
    /// The link leads back to the broker that has opened it.
    #[error("it is this broker itself")]
    Itself,
    /// Another broker that is connected has this name.
    #[error("another broker of the cluster has this name already")]
    NameTaken,
    /// The incarnation is out of the cluster for good.
    #[error("it holds this broker to be down; it may join again as a new one")]
    Down,
    /// The name of the broker, or its cluster's, is not allowed.
    #[error("the name of this broker is not allowed")]
    Name,
    /// The two have different maps of slots.
    #[error("its `slots` and `homes` are not those of this broker")]
    OtherPlacement,
    /// There are as many brokers as there may be.
    #[error("the cluster has its maximum of {0} brokers")]
    Full(String),
    /// Another reason, of a later version.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Version(_) => 1,
            Self::OtherCluster(_) => 2,
            Self::Secret => 3,
            Self::Itself => 4,
            Self::NameTaken => 5,
            Self::Down => 6,
            Self::Name => 7,
            Self::Full(_) => 8,
            Self::OtherPlacement => 9,
            Self::Other(_) => 255,
        }
    }

    pub(crate) fn detail(&self) -> Cow<'_, str> {
        match self {
            Self::Version(detail)
            | Self::OtherCluster(detail)
            | Self::Full(detail)
            | Self::Other(detail) => detail.as_str().into(),
            _ => "".into(),
        }
    }

    pub(crate) fn from_code(code: u8, detail: &str) -> Self {
        let detail = detail.to_owned();
        match code {
            1 => Self::Version(detail),
            2 => Self::OtherCluster(detail),
            3 => Self::Secret,
            4 => Self::Itself,
            5 => Self::NameTaken,
            6 => Self::Down,
            7 => Self::Name,
            8 => Self::Full(detail),
            9 => Self::OtherPlacement,
            _ => Self::Other(detail),
        }
    }
}
