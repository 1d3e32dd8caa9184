//! A managed object.

use std::sync::Arc;

use super::{RecordError, versioned};
use crate::durable::keys::ManagedKey;
use crate::durable::wire::utf8;

const VERSION: u8 = 1;

/// Maximum length of the text of a managed object, in bytes.
pub const MANAGED_TEXT_MAX: usize = 64 * 1024;

/// The stored record of a managed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedRecord {
    /// The object as text, in an encoding that only the owner of the object knows. Has at most [`MANAGED_TEXT_MAX`]
    /// bytes. That of a mark is empty.
    pub text: Arc<str>,
}

impl ManagedRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.text.len() <= MANAGED_TEXT_MAX);
        out.push(VERSION);
        out.extend_from_slice(self.text.as_bytes());
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let text = utf8(versioned(record, VERSION)?.rest())?;
        if text.len() > MANAGED_TEXT_MAX {
            return Err(RecordError::Malformed("an object is too long"));
        }
        Ok(Self { text: text.into() })
    }

    /// Checks that the record fits its key: objects have a text, and marks have none.
    ///
    /// # Errors
    /// [`RecordError::Malformed`].
    pub(in crate::durable) fn check(&self, key: ManagedKey<'_>) -> Result<(), RecordError> {
        if key.is_mark() == self.text.is_empty() {
            Ok(())
        } else {
            Err(RecordError::Malformed("an object has no text, or a mark has one"))
        }
    }
}
