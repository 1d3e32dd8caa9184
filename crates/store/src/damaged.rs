//! What is not as it was written, and what is lost with it.

use crate::{Keyspace, StoreError};
use std::ops::Range;
use std::path::PathBuf;

/// Something in a store that is not as it was written.
#[derive(Debug)]
pub struct Damaged {
    /// What is wrong and where, as a sentence.
    pub error: StoreError,
    /// The file, if it is there.
    pub file: Option<PathBuf>,
    /// The bytes of the file that are of no use.
    pub bytes: Range<u64>,
    /// The changes that are lost, as far as they can be told. Later ones of the same keys count all the same.
    pub records: Vec<LostRecord>,
    /// Whether `records` has all that are lost, for sure. Otherwise there may be more, and their keys may be
    /// damaged themselves.
    pub is_all: bool,
}

/// A change of a record that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRecord {
    /// The keyspace of the record.
    pub keyspace: Keyspace,
    /// Its key.
    pub key: Vec<u8>,
    /// Bytes of the value that it got. `None`: it was removed.
    pub value_len: Option<u32>,
}

impl Damaged {
    /// Damage of which it is not known what it costs.
    pub(crate) fn unknown(error: StoreError) -> Damaged {
        Damaged { error, file: None, bytes: 0..0, records: Vec::new(), is_all: false }
    }

    /// Damage of a whole file.
    pub(crate) fn of_file(error: StoreError, file: PathBuf) -> Damaged {
        let bytes = 0..std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        let is_there = file.exists();
        let file = is_there.then_some(file);
        Damaged { error, file, bytes, records: Vec::new(), is_all: false }
    }
}
