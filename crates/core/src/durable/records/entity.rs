//! What an entity is.

use super::{RecordError, versioned};
use crate::ids::QueueNumber;

const VERSION: u8 = 1;

/// An entity as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRecord {
    /// Names what lies in its queue.
    pub queue: QueueNumber,
    /// What it was defined as, in a form that its owner knows.
    pub definition: Box<[u8]>,
}

impl EntityRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.queue.to_be_bytes());
        out.extend_from_slice(&self.definition);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if it is none, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        Ok(Self { queue: reader.u64_be()?, definition: reader.rest().into() })
    }
}
