//! Answers to clients.

use std::sync::Arc;

use statestore_proto::{Refusal, Reply, Version};

/// The answer to a request, and when it may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outcome that the payload of the response states.
    pub outcome: Outcome,
    /// The version in `__ts`, if the response has one.
    pub version: Option<Version>,
    /// The batch of the partition's shard that must be durable before the answer is sent.
    pub after: Option<u64>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict without a value.
    Verdict(Verdict),
    /// The value that was requested.
    Value(Arc<[u8]>),
    /// The key does not exist.
    Absent,
}

/// The outcome of a request that returns no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request was carried out.
    Ok,
    /// The request was not carried out: the condition does not hold, or the key has another value.
    NotApplied,
    /// One key was deleted.
    Deleted,
    /// There was no key to delete, or no watch to stop.
    Nothing,
    /// The request was refused.
    Refused(Refusal),
}

impl Answer {
    /// Creates an answer that has no version and waits for nothing.
    pub(super) fn at_once(verdict: Verdict) -> Self {
        Self { outcome: Outcome::Verdict(verdict), version: None, after: None }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::at_once(Verdict::Refused(refusal))
    }
}

impl Verdict {
    /// Whether the same request would get the same answer at any other time.
    pub(super) fn is_final(self) -> bool {
        let refusals = [Refusal::MissingTimestamp, Refusal::MalformedTimestamp];
        matches!(self, Self::Refused(refusal) if refusals.contains(&refusal))
    }
}

impl Outcome {
    /// The reply for the payload of the response.
    pub fn reply(&self) -> Reply<'_> {
        match self {
            Self::Value(value) => Reply::Value(value),
            Self::Absent => Reply::Absent,
            Self::Verdict(Verdict::Ok) => Reply::Ok,
            Self::Verdict(Verdict::NotApplied) => Reply::NotApplied,
            Self::Verdict(Verdict::Deleted) => Reply::Deleted,
            Self::Verdict(Verdict::Nothing) => Reply::Nothing,
            Self::Verdict(Verdict::Refused(refusal)) => Reply::Refused(*refusal),
        }
    }
}
