//! The reservation of sequence numbers of a part: numbers below it may have been assigned.

use super::{RecordError, versioned};
use crate::durable::wire::put_varint;
use crate::entity::SequenceNumber;

const VERSION: u8 = 1;

/// Appends the record.
pub fn encode(reserved: SequenceNumber, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_varint(reserved, out);
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(record: &[u8]) -> Result<SequenceNumber, RecordError> {
    let mut reader = versioned(record, VERSION)?;
    let reserved = reader.varint()?;
    reader.finish().map(|()| reserved)
}
