//! The time until which a message with the same id is a duplicate. The key contains the id.

use super::{RecordError, versioned};
use crate::durable::wire::put_varint;
use crate::time::WallTime;

const VERSION: u8 = 1;

/// Appends the record.
pub fn encode(until: WallTime, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_varint(until.as_millis(), out);
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(record: &[u8]) -> Result<WallTime, RecordError> {
    let mut reader = versioned(record, VERSION)?;
    let until = WallTime::from_millis(reader.varint()?);
    reader.finish().map(|()| until)
}
