//! The file `segments`, called the roster: which segments exist besides the newest, and which of their records are
//! dead.
//!
//! A segment may be deleted when none of its records is the live value of a key. But it may have removals or newer
//! values of keys that have values in older segments, and these records are the reason why the older values are dead.
//! Therefore the roster is written first, without the segment and with the dead records of all others, and only then is
//! the file deleted. Nothing else keeps a removal, and nothing needs to: a listed dead record does the work of the
//! removal.
//!
//! Why that is enough. A start reads the records in order. A value that is not listed as dead becomes the value of its
//! key, and any other record takes the value of its key away. What must hold: the last record of a key without a value
//! is either not a value or is listed as dead. When a segment is deleted, consider the record that then becomes the
//! last one of such a key. If it is a value, it was made dead by the next record of its key. That next record is in the
//! segment being deleted or in one deleted before, since otherwise it would itself be the last. So the value was
//! already dead when that roster was written, and has been listed since.
//!
//! ```text
//! magic 8 | version 4 | number of the first segment that is not listed 4 | count 4
//! | each: number 4, end 8, words 4, a bit for each record (words × 8) | checksum of all before 8
//! ```
//!
//! A segment with a lower number that is not listed was deleted, or is about to be. Before the first segment was
//! deleted the file does not exist; then all segments are there, from number 1 on.

use super::bits::Bits;
use super::disk::{Disk, replace};
use super::frame::{take, u32, u64};
use super::segment::read_checked;
use crate::{StoreError, checksum};
use std::collections::BTreeMap;

pub(super) const NAME: &str = "segments";
const MAGIC: &[u8; 8] = b"baridseg";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Roster {
    /// The number of the first segment that is not listed and was not deleted.
    pub next: u32,
    pub listed: BTreeMap<u32, Listed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Offset where the last frame ends.
    pub end: u64,
    pub dead: Bits,
}

impl Default for Roster {
    fn default() -> Self {
        Roster { next: 1, listed: BTreeMap::new() }
    }
}

impl Roster {
    /// Reads the roster. Without a file, returns that of a log from which no segment was ever deleted.
    pub fn read(disk: &dyn Disk, names: &[String]) -> Result<Roster, StoreError> {
        if !names.iter().any(|name| name == NAME) {
            return Ok(Roster::default());
        }
        let path = disk.path(NAME);
        let bytes = read_checked(disk, NAME)?;
        let mut rest = bytes.as_slice();
        if take(&mut rest, 8) != Some(MAGIC) {
            return Err(StoreError::damaged(&path, "it is another file than its name says"));
        }
        match u32(&mut rest) {
            Some(VERSION) => (),
            version => {
                return Err(StoreError::Unusable(format!(
                    "{} has version {} of the format, and this broker reads version {VERSION}; use the \
                     version of the broker that wrote it",
                    path.display(),
                    version.unwrap_or(0)
                )));
            }
        }
        Roster::decode(rest).ok_or_else(|| StoreError::damaged(&path, "it is too short"))
    }

    fn decode(mut rest: &[u8]) -> Option<Roster> {
        let mut roster = Roster { next: u32(&mut rest)?, listed: BTreeMap::new() };
        for _ in 0..u32(&mut rest)? {
            let (number, end, words) = (u32(&mut rest)?, u64(&mut rest)?, u32(&mut rest)?);
            let dead = Bits::from_bytes(take(&mut rest, words as usize * 8)?);
            roster.listed.insert(number, Listed { end, dead });
        }
        rest.is_empty().then_some(roster)
    }

    /// Writes the roster, and replaces the previous one.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let mut bytes = MAGIC.to_vec();
        for field in [VERSION, self.next, self.listed.len() as u32] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for (number, Listed { end, dead }) in &self.listed {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
            dead.encode(&mut bytes);
        }
        bytes.extend_from_slice(&checksum::of(&bytes).to_le_bytes());
        replace(disk, NAME, &bytes)
            .map(drop)
            .map_err(|error| StoreError::io("write", &disk.path(NAME), error))
    }
}
