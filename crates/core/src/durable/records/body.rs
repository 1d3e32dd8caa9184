//! The body of a message, as it was received.

use super::{RecordError, versioned};

const VERSION: u8 = 1;

/// Appends the record.
pub fn encode(body: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(body);
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(record: &[u8]) -> Result<&[u8], RecordError> {
    versioned(record, VERSION).map(|mut reader| reader.rest())
}
