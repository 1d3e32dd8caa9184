//! The last version of a tenant's state store that one shard knows of.

use statestore_proto::Version;

use super::{RecordError, put_state_version, state_version, versioned};

const VERSION: u8 = 1;

/// Appends the record.
pub fn encode(latest: Version, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_state_version(latest, out);
}

/// Reads a record.
///
/// # Errors
/// [`RecordError`] if `record` is malformed, or of a later version.
pub fn decode(record: &[u8]) -> Result<Version, RecordError> {
    let mut reader = versioned(record, VERSION)?;
    let latest = state_version(&mut reader)?;
    reader.finish().map(|()| latest)
}
