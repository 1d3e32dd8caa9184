//! A QoS 2 message received and not yet released. The key says it all.

use super::{RecordError, versioned};

const VERSION: u8 = 1;

/// Appends the record.
pub fn encode(out: &mut Vec<u8>) {
    out.push(VERSION);
}

/// Reads a record.
pub fn decode(record: &[u8]) -> Result<(), RecordError> {
    versioned(record, VERSION)?.finish()
}
