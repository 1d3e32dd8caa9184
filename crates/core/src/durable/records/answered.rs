//! The answer to a request to the state store, kept in case the request is sent again.

use statestore_proto::Refusal;

use super::{RecordError, known_flags, put_state_version, state_version, versioned};
use crate::durable::wire::flag;
use crate::state_store::{AnsweredRecord, Verdict};

const VERSION: u8 = 1;

const VERSIONED: u8 = 1 << 0;

impl AnsweredRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.push(flag(self.version.is_some(), VERSIONED));
        out.push(code(self.verdict));
        out.extend_from_slice(&self.correlation.to_be_bytes());
        put_state_version(self.answered_at, out);
        if let Some(version) = self.version {
            put_state_version(version, out);
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let flags = reader.u8()?;
        known_flags(flags, VERSIONED)?;
        let verdict = verdict(reader.u8()?)?;
        let correlation = reader.u128_be()?;
        let answered_at = state_version(&mut reader)?;
        let version = match flags & VERSIONED {
            0 => None,
            _ => Some(state_version(&mut reader)?),
        };
        reader.finish().map(|()| Self { correlation, verdict, version, answered_at })
    }
}

/// The byte of a verdict. No byte is reused for another verdict.
fn code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Ok => 0,
        Verdict::NotApplied => 1,
        Verdict::Deleted => 2,
        Verdict::Nothing => 3,
        Verdict::Refused(refusal) => match refusal {
            Refusal::TimestampInFuture => 16,
            Refusal::FencingTokenRequired => 17,
            Refusal::FencingTokenInFuture => 18,
            Refusal::FencingTokenTooOld => 19,
            Refusal::QuotaExceeded => 20,
            Refusal::Syntax => 21,
            Refusal::NotAuthorized => 22,
            Refusal::UnknownCommand => 23,
            Refusal::WrongNumberOfArguments => 24,
            Refusal::MissingTimestamp => 25,
            Refusal::MalformedTimestamp => 26,
            Refusal::EmptyKey => 27,
        },
    }
}

fn verdict(found: u8) -> Result<Verdict, RecordError> {
    let verdicts = [Verdict::Ok, Verdict::NotApplied, Verdict::Deleted, Verdict::Nothing];
    let mut all = verdicts.into_iter().chain(Refusal::ALL.map(Verdict::Refused));
    all.find(|verdict| code(*verdict) == found)
        .ok_or(RecordError::Malformed("an answer is unknown"))
}
