//! The state of a message session.

use std::sync::Arc;

use super::{RecordError, versioned};
use crate::durable::wire::put_varint;
use crate::time::WallTime;

const VERSION: u8 = 1;

/// The stored state of a message session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStateRecord {
    /// The state as it was set last. May be empty.
    pub state: Arc<[u8]>,
    /// Time at which it was set.
    pub updated_at: WallTime,
}

impl SessionStateRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_varint(self.updated_at.as_millis(), out);
        out.extend_from_slice(&self.state);
    }

    /// Reads a record, copying the state once.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let mut reader = versioned(record, VERSION)?;
        let updated_at = WallTime::from_millis(reader.varint()?);
        Ok(Self { state: reader.rest().into(), updated_at })
    }
}
