//! The note of a QoS 2 message that was received and not yet released: which sessions and queues of a shard have it.

use smallvec::SmallVec;

use super::{RecordError, versioned};
use crate::durable::wire::{Reader, put_varint};
use crate::ids::{QueueNumber, SessionNumber};

/// Format version of a record that says that all recipients have the message. Earlier versions of Barid wrote only this
/// one.
const ALL: u8 = 1;

/// Format version of a record that names the recipients that have the message.
const SOME: u8 = 2;

/// The sessions and queues of one shard that have a QoS 2 message, from its PUBLISH to PUBREL.
///
/// Noted in the batch in which a session or a queue gets the message. When a client repeats its PUBLISH after a crash,
/// some recipients may have the message already: they are skipped, and the others get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedRecord {
    /// All recipients have the message.
    All,
    /// Possibly only some recipients have the message.
    Some {
        /// The last session that has the message: sessions get it in ascending order of their numbers. 0 if no session
        /// has it.
        last_session: SessionNumber,
        /// The queues of entities that have the message; a queue that has two copies is listed twice.
        queues: SmallVec<[QueueNumber; 1]>,
    },
}

impl Default for ReceivedRecord {
    /// The record of a message that nobody has yet.
    fn default() -> Self {
        Self::Some { last_session: 0, queues: SmallVec::new() }
    }
}

impl ReceivedRecord {
    /// Returns whether a session has the message, if the session is one of its recipients.
    pub fn has_session(&self, session: SessionNumber) -> bool {
        match self {
            Self::All => true,
            Self::Some { last_session, .. } => session <= *last_session,
        }
    }

    /// Returns the maximum number of copies that a queue has.
    pub fn copies_in(&self, queue: QueueNumber) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Some { queues, .. } => queues.iter().filter(|known| **known == queue).count(),
        }
    }

    /// Notes that a session gets the message, after all sessions with smaller numbers.
    pub fn add_session(&mut self, session: SessionNumber) {
        if let Self::Some { last_session, .. } = self {
            *last_session = session.max(*last_session);
        }
    }

    /// Notes that a queue gets a copy.
    pub fn add_queue(&mut self, queue: QueueNumber) {
        if let Self::Some { queues, .. } = self {
            queues.push(queue);
        }
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::All => out.push(ALL),
            Self::Some { last_session, queues } => {
                out.push(SOME);
                put_varint(*last_session, out);
                queues.iter().for_each(|queue| put_varint(*queue, out));
            }
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        if let [ALL, rest @ ..] = record {
            return Reader::new(rest).finish().map(|()| Self::All);
        }
        let mut reader = versioned(record, SOME)?;
        let last_session = reader.varint()?;
        let mut queues = SmallVec::new();
        while !reader.is_empty() {
            queues.push(reader.varint()?);
        }
        Ok(Self::Some { last_session, queues })
    }
}
