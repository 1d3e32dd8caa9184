//! The errors of requests.

use std::fmt;

/// The reason why the state store refuses a request. The variants are in the order in which
/// requests are checked, with the quota last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The payload is not exactly one array of bulk strings, or has an unknown option, an option
    /// twice, a time to live that is not a number above 0, or a pattern that is too long.
    Syntax,
    /// The verb does not exist. Verbs are in upper case.
    UnknownCommand,
    /// The verb requires a different number of arguments.
    WrongNumberOfArguments,
    /// The key is empty.
    EmptyKey,
    /// The user may not do this with the key.
    NotAuthorized,
    /// A SET does not have a [`TIMESTAMP`](crate::properties::TIMESTAMP).
    MissingTimestamp,
    /// The timestamp or the fencing token is not an [`Hlc`](crate::Hlc).
    MalformedTimestamp,
    /// The timestamp of a SET is more than [`DRIFT_MAX_MS`](crate::DRIFT_MAX_MS) ahead.
    TimestampInFuture,
    /// The fencing token is more than [`DRIFT_MAX_MS`](crate::DRIFT_MAX_MS) ahead.
    FencingTokenInFuture,
    /// The key is protected by a fencing token, and the request has none.
    FencingTokenRequired,
    /// The key is protected by a fencing token greater than that of the request.
    FencingTokenTooOld,
    /// There is no room for another key.
    QuotaExceeded,
}

impl Refusal {
    /// All refusals, in the order of the checks.
    pub const ALL: [Self; 12] = [
        Self::Syntax,
        Self::UnknownCommand,
        Self::WrongNumberOfArguments,
        Self::EmptyKey,
        Self::NotAuthorized,
        Self::MissingTimestamp,
        Self::MalformedTimestamp,
        Self::TimestampInFuture,
        Self::FencingTokenInFuture,
        Self::FencingTokenRequired,
        Self::FencingTokenTooOld,
        Self::QuotaExceeded,
    ];

    /// The text that follows `-ERR ` on the wire. Clients compare it byte by byte.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Syntax => "syntax error",
            Self::UnknownCommand => "unknown command",
            Self::WrongNumberOfArguments => "wrong number of arguments",
            Self::EmptyKey => "the key length is zero",
            Self::NotAuthorized => "not authorized",
            Self::MissingTimestamp => "missing timestamp",
            Self::MalformedTimestamp => "malformed timestamp",
            Self::TimestampInFuture => {
                "the request timestamp is too far in the future; \
                 ensure that the client and broker system clocks are synchronized"
            }
            Self::FencingTokenInFuture => {
                "the request fencing token timestamp is too far in the future; \
                 ensure that the client and broker system clocks are synchronized"
            }
            Self::FencingTokenRequired => "a fencing token is required for this request",
            Self::FencingTokenTooOld => {
                "the request fencing token is a lower version \
                 than the fencing token protecting the resource"
            }
            Self::QuotaExceeded => "the quota has been exceeded",
        }
    }

    /// Returns the refusal with this text.
    pub(crate) fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.text().as_bytes() == text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Refusal {}
