//! A managed object.

use std::sync::Arc;

use super::{RecordError, put_stamp, stamp, versioned};
use crate::durable::keys::ManagedKey;
use crate::durable::wire::utf8;
use crate::stamp::Stamp;

/// Format version of a record without a stamp. Earlier versions of Barid wrote only this one, and marks have none.
const PLAIN: u8 = 1;

/// Format version of a record that begins with a stamp.
const STAMPED: u8 = 2;

/// Maximum length of the text of a managed object, in bytes.
pub const MANAGED_TEXT_MAX: usize = 64 * 1024;

/// The stored record of a managed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedRecord {
    /// The object as text, in an encoding that only the owner of the object knows. Has at most [`MANAGED_TEXT_MAX`]
    /// bytes. That of a mark is empty, and so is that of a *tombstone*, which says that the object was removed.
    pub text: Arc<str>,
    /// Which change of the object it is. That of a mark is [`Stamp::NONE`].
    pub stamp: Stamp,
}

impl ManagedRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.text.len() <= MANAGED_TEXT_MAX);
        if self.stamp == Stamp::NONE {
            out.push(PLAIN);
        } else {
            out.push(STAMPED);
            put_stamp(self.stamp, out);
        }
        out.extend_from_slice(self.text.as_bytes());
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let (stamp, mut rest) = match record.first() {
            Some(&PLAIN) => (Stamp::NONE, versioned(record, PLAIN)?),
            _ => {
                let mut reader = versioned(record, STAMPED)?;
                (stamp(&mut reader)?, reader)
            }
        };
        let text = utf8(rest.rest())?;
        if text.len() > MANAGED_TEXT_MAX {
            return Err(RecordError::Malformed("an object is too long"));
        }
        Ok(Self { text: text.into(), stamp })
    }

    /// Checks that the record fits its key: objects have a text, tombstones have a stamp, and marks have neither.
    ///
    /// # Errors
    /// [`RecordError::Malformed`].
    pub(in crate::durable) fn check(&self, key: ManagedKey<'_>) -> Result<(), RecordError> {
        let fits = match key.is_mark() {
            true => self.text.is_empty() && self.stamp == Stamp::NONE,
            false => !self.text.is_empty() || self.stamp != Stamp::NONE,
        };
        if fits {
            Ok(())
        } else {
            Err(RecordError::Malformed("an object has no text, or a mark has one"))
        }
    }
}
