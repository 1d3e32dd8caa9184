//! Damage: data that differs from what was written, and the records that are lost with it.

use crate::{Keyspace, StoreError};
use std::ops::Range;
use std::path::PathBuf;

/// A part of a store that differs from what was written.
#[derive(Debug)]
pub struct Damaged {
    /// A sentence that says what is damaged and where.
    pub error: StoreError,
    /// The damaged file, if it exists.
    pub file: Option<PathBuf>,
    /// The byte range of the file that cannot be used.
    pub bytes: Range<u64>,
    /// The changes that are lost, as far as they are known. A later change of the same key that is intact still
    /// applies.
    pub records: Vec<LostRecord>,
    /// Whether `records` certainly has all lost changes. If not, there may be more, and the listed keys may themselves
    /// be damaged.
    pub is_all: bool,
}

/// A change of a record that was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRecord {
    /// The keyspace of the record.
    pub keyspace: Keyspace,
    /// The key of the record.
    pub key: Vec<u8>,
    /// Bytes of the value that the change put. `None`: the change removed the key.
    pub value_len: Option<u32>,
}

impl Damaged {
    /// Damage whose extent is not known.
    pub(crate) fn unknown(error: StoreError) -> Damaged {
        Damaged { error, file: None, bytes: 0..0, records: Vec::new(), is_all: false }
    }

    /// Damage that affects a whole file.
    pub(crate) fn of_file(error: StoreError, file: PathBuf) -> Damaged {
        let bytes = 0..std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        let is_there = file.exists();
        let file = is_there.then_some(file);
        Damaged { error, file, bytes, records: Vec::new(), is_all: false }
    }
}
