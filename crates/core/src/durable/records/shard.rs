//! A shard's own record.

use super::{RecordError, versioned};
use crate::durable::wire::put_varint;

const VERSION: u8 = 1;

/// A shard's own record in its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// Number of times that the shard was opened.
    pub epoch: u64,
    /// Numbers of sessions and queues below this one may have been assigned, and none from this one on. Without the
    /// bits of the shard.
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
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let read = Self { epoch: reader.varint()?, reserved: reader.varint()? };
        reader.finish().map(|()| read)
    }
}
