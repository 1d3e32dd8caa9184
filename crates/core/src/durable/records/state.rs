//! The record of a key of the state store.

use super::{
    RecordError, known_flags, put_holder, put_state_version, split_holder, state_version, versioned,
};
use crate::durable::wire::{flag, put_str, put_varint};
use crate::state_store::{FencingToken, StateRecord};
use crate::time::WallTime;

const VERSION: u8 = 1;

const EXPIRES: u8 = 1 << 0;
const FENCED: u8 = 1 << 1;

impl StateRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_holder(self.holder.as_deref(), out);
        out.push(VERSION);
        out.push(
            flag(self.expires_at.is_some(), EXPIRES) | flag(self.fencing_token.is_some(), FENCED),
        );
        put_state_version(self.version, out);
        if let Some(at) = self.expires_at {
            put_varint(at.as_millis(), out);
        }
        if let Some(token) = &self.fencing_token {
            let token = token.as_hlc();
            put_varint(token.wall, out);
            put_varint(token.counter.into(), out);
            put_str(token.node, out);
        }
        out.extend_from_slice(&self.value);
    }

    /// Reads a record, copying the value once.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let (holder, record) = split_holder(record)?;
        let mut reader = versioned(record, VERSION)?;
        let flags = reader.u8()?;
        known_flags(flags, EXPIRES | FENCED)?;
        let version = state_version(&mut reader)?;
        let expires_at = match flags & EXPIRES {
            0 => None,
            _ => Some(WallTime::from_millis(reader.varint()?)),
        };
        let fencing_token = match flags & FENCED {
            0 => None,
            _ => {
                let (wall, counter, node) = (reader.varint()?, reader.narrow()?, reader.str()?);
                let token = FencingToken::from_parts(wall, counter, node);
                Some(token.ok_or(RecordError::Malformed("a fencing token is none"))?)
            }
        };
        Ok(Self { value: reader.rest().into(), version, fencing_token, expires_at, holder })
    }
}
