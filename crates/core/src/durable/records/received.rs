//! The note of a QoS 2 message that was received and not yet released: which sessions and queues of a shard have it.

use smallvec::SmallVec;

use super::{RecordError, versioned};
use crate::durable::wire::{Reader, put_varint};
use crate::ids::{QueueNumber, SessionNumber};

/// The version that says that everybody has it. Earlier versions of Barid knew no other.
const ALL: u8 = 1;

/// The version that names those that have it.
const SOME: u8 = 2;

/// The sessions and queues of one shard that have a QoS 2 message, from its PUBLISH to PUBREL.
///
/// Noted in the batch in which a session or a queue gets the message. A client that repeats its PUBLISH after a crash may
/// find that the message was handed on to some only: they are left out, and the others get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedRecord {
    /// Everybody who was to have it.
    All,
    /// Not all, perhaps.
    Some {
        /// Sessions get it in ascending order of their numbers, and this is the last one that has it; 0: none has.
        last_session: SessionNumber,
        /// The queues of entities that have it; one that has two copies is there twice.
        queues: SmallVec<[QueueNumber; 1]>,
    },
}

impl Default for ReceivedRecord {
    /// Nobody has it.
    fn default() -> Self {
        Self::Some { last_session: 0, queues: SmallVec::new() }
    }
}

impl ReceivedRecord {
    /// Whether a session has it, if it was to.
    pub fn has_session(&self, session: SessionNumber) -> bool {
        match self {
            Self::All => true,
            Self::Some { last_session, .. } => session <= *last_session,
        }
    }

    /// How many copies a queue has at most.
    pub fn copies_in(&self, queue: QueueNumber) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Some { queues, .. } => queues.iter().filter(|known| **known == queue).count(),
        }
    }

    /// A session gets it, after all that have smaller numbers.
    pub fn add_session(&mut self, session: SessionNumber) {
        if let Self::Some { last_session, .. } = self {
            *last_session = session.max(*last_session);
        }
    }

    /// A queue gets a copy.
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
    /// [`RecordError`] if it is none, or of a later version.
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
