//! What a client is told.

use std::sync::Arc;

use statestore_proto::{Refusal, Reply, Version};

/// What a request is answered, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the payload says.
    pub outcome: Outcome,
    /// What `__ts` says; none: there is none.
    pub version: Option<Version>,
    /// The batch of the partition's shard that has to be durable before the answer leaves.
    pub after: Option<u64>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One word.
    Verdict(Verdict),
    /// The value that was asked for.
    Value(Arc<[u8]>),
    /// There is no such key.
    Absent,
}

/// What became of a request, if that is not a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Ok,
    /// Not done: the condition does not hold, or the key has another value.
    NotApplied,
    /// One key was deleted.
    Deleted,
    /// There was nothing to delete, or to stop.
    Nothing,
    /// Refused.
    Refused(Refusal),
}

impl Answer {
    /// An answer that tells of no version and waits for nothing.
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
    /// Whether the same request would be answered the same at any other time.
    pub(super) fn is_final(self) -> bool {
        let refusals = [Refusal::MissingTimestamp, Refusal::MalformedTimestamp];
        matches!(self, Self::Refused(refusal) if refusals.contains(&refusal))
    }
}

impl Outcome {
    /// What the payload of the response says.
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
