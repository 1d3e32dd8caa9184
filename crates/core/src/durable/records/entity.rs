//! The definition of an entity.

use super::{RecordError, versioned};
use crate::ids::QueueNumber;

const VERSION: u8 = 1;

/// The stored record of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRecord {
    /// The number of its queue.
    pub queue: QueueNumber,
    /// Its definition, in an encoding that only the owner of the entity knows.
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
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        Ok(Self { queue: reader.u64_be()?, definition: reader.rest().into() })
    }
}
