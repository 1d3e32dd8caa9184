//! The records of slots that are about to come to this broker, in files of the data directory.
//!
//! docs/formats/data-directory.md describes the files. A file is kept until the slot has come, or has gone elsewhere: the
//! broker that had the slot decides, and may be down in between.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use barid_engine::moving::Records;
use barid_store::private;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"BARIDSLT";
const VERSION: u32 = 1;

/// The name of the directory, in the data directory.
const DIRECTORY: &str = "slots";

/// The files of one broker.
#[derive(Debug)]
pub struct StagedSlots(PathBuf);

/// A file: the slot, and the number of the move among all moves of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Staged {
    pub slot: u16,
    pub generation: u64,
}

impl StagedSlots {
    /// Those in a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(DIRECTORY))
    }

    /// Returns all files, and removes those that were not written to the end.
    pub fn all(&self) -> io::Result<Vec<Staged>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let numbers = name.strip_suffix(".slot").and_then(|name| name.split_once('-'));
            let staged = numbers.and_then(|(slot, generation)| {
                Some(Staged { slot: slot.parse().ok()?, generation: generation.parse().ok()? })
            });
            match staged {
                Some(staged) => all.push(staged),
                None if name.ends_with(".part") => fs::remove_file(entry.path())?,
                None => {}
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Writes the records of a slot that come from the broker of this name, in place of earlier ones. They are on the disk
    /// when this returns.
    pub fn keep(&self, staged: Staged, from: &str, records: &Records) -> io::Result<()> {
        private::create_dir_all(&self.0)?;
        let path = self.path(staged);
        let part = path.with_extension("part");
        let mut file = private::options().write(true).create(true).truncate(true).open(&part)?;
        let name = u8::try_from(from.len()).expect("names of brokers are short");
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.push(name);
        head.extend(from.as_bytes());
        head.extend((records.as_bytes().len() as u64).to_le_bytes());
        head.extend(xxh3_64(records.as_bytes()).to_le_bytes());
        head.extend(xxh3_64(&head).to_le_bytes());
        file.write_all(&head)?;
        file.write_all(records.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(&self.0)?.sync_all()
    }

    /// Returns the name of the broker that the records come from, and the records.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn read(&self, staged: Staged) -> io::Result<(String, Records)> {
        let bytes = fs::read(self.path(staged))?;
        parse(&bytes).ok_or_else(|| {
            let path = self.path(staged);
            io::Error::new(ErrorKind::InvalidData, format!("{} is damaged", path.display()))
        })
    }

    /// Removes the file, if it is there.
    pub fn remove(&self, staged: Staged) -> io::Result<()> {
        match fs::remove_file(self.path(staged)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, Staged { slot, generation }: Staged) -> PathBuf {
        self.0.join(format!("{slot}-{generation}.slot"))
    }
}

fn parse(bytes: &[u8]) -> Option<(String, Records)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (len, rest) = rest.split_first()?;
    let (from, rest) = rest.split_at_checked(usize::from(*len))?;
    let (len, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let head = &bytes[..bytes.len() - rest.len()];
    let (hash_of_head, records) = rest.split_first_chunk()?;
    let is_whole = u64::from_le_bytes(*hash_of_head) == xxh3_64(head)
        && u64::from_le_bytes(*len) == records.len() as u64
        && u64::from_le_bytes(*hash) == xxh3_64(records);
    let from = std::str::from_utf8(from).ok()?.to_owned();
    is_whole.then(|| (from, Records::from_bytes(records.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let slots = StagedSlots::of(dir.path());
        assert_eq!(slots.all().unwrap(), []);
        let (one, other) = (Staged { slot: 3, generation: 2 }, Staged { slot: 12, generation: 1 });
        let records = Records::from_bytes(b"records".to_vec());
        slots.keep(other, "b1", &Records::default()).unwrap();
        slots.keep(one, "b1", &records).unwrap();
        fs::write(dir.path().join("slots/5-1.part"), b"cut off").unwrap();
        assert_eq!(slots.all().unwrap(), [one, other]);
        assert!(!dir.path().join("slots/5-1.part").exists());
        assert_eq!(slots.read(one).unwrap(), ("b1".to_owned(), records));
        let path = dir.path().join("slots/3-2.slot");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(slots.read(one).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(slots.read(one).is_err(), "{at} bytes");
        }
        slots.remove(one).unwrap();
        slots.remove(one).unwrap();
        assert_eq!(slots.all().unwrap(), [other]);
    }
}
