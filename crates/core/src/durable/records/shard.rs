//! What a store has of its shard itself.

use super::{RecordError, versioned};
use crate::durable::wire::put_varint;

const VERSION: u8 = 1;

/// What a store has of its shard itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// How often it was opened.
    pub epoch: u64,
    /// Sessions and queues were given numbers below this one, perhaps, and none from it on. Without the bits of the shard.
    pub reserved: u64,
}

impl ShardRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_varint(self.epoch, out);
        put_varint(self.reserved, out);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if it is none, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let read = Self { epoch: reader.varint()?, reserved: reader.varint()? };
        reader.finish().map(|()| read)
    }
}
