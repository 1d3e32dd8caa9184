//! A segment: a file with a header and frames, one after the other.
//!
//! ```text
//! magic 8 | version of the format 4 | number 4 | mark 8 | number of the first frame 8
//! | where the segment before ends 8 | checksum of all before 8
//! ```
//!
//! Segments are numbered from 1 without gaps. Frames are only appended to the one with the highest number. The end of a
//! segment is recorded when the next one is created: in the header of the next segment, and later in the
//! [`Roster`](super::roster::Roster). Anything behind the end is a frame that failed.
//!
//! The number of a segment is in its name, as in `log-0000000042`.

use super::disk::{Disk, File, abandon, begin, finish, read_all};
use super::frame::{take, u32, u64};
use crate::{StoreError, checksum};
use std::hash::{BuildHasher, RandomState};
use std::{io, path::PathBuf, sync::Arc};

const MAGIC: &[u8; 8] = b"baridlog";
const VERSION: u32 = 1;

/// Offset where the first frame begins.
pub(super) const HEADER_LEN: u64 = 48;

pub(super) struct Segment {
    pub number: u32,
    /// The first bytes of each of its frames. Never 0.
    pub mark: u64,
    pub first_frame: u64,
    /// Offset where the segment before it ends.
    pub end_before: u64,
    pub file: Arc<dyn File>,
    pub path: PathBuf,
}

impl Segment {
    /// Opens the file of a future segment, so that its descriptor is available when the segment is created.
    pub fn begin(disk: &dyn Disk, number: u32) -> io::Result<Arc<dyn File>> {
        begin(disk, &name(number))
    }

    /// Removes the file of a segment that was begun and will not be created.
    pub fn abandon(disk: &dyn Disk, number: u32) {
        abandon(disk, &name(number));
    }

    /// Creates an empty segment atomically: after a crash it exists in whole or not at all. Uses the file that was
    /// begun for it, if there is one.
    pub fn create(
        disk: &dyn Disk,
        begun: Option<Arc<dyn File>>,
        number: u32,
        mark: u64,
        first_frame: u64,
        end_before: u64,
    ) -> Result<Segment, StoreError> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&number.to_le_bytes());
        for field in [mark, first_frame, end_before] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        header.extend_from_slice(&checksum::of(&header).to_le_bytes());
        let path = disk.path(&name(number));
        let file = begun
            .map_or_else(|| Self::begin(disk, number), Ok)
            .and_then(|file| finish(disk, file, &name(number), &header))
            .map_err(|error| StoreError::io("make", &path, error))?;
        Ok(Segment { number, mark, first_frame, end_before, file, path })
    }

    pub fn open(disk: &dyn Disk, number: u32) -> Result<Segment, StoreError> {
        let path = disk.path(&name(number));
        let file =
            disk.open(&name(number)).map_err(|error| StoreError::io("open", &path, error))?;
        let mut header = [0; HEADER_LEN as usize];
        let len =
            file.read_at(0, &mut header).map_err(|error| StoreError::io("read", &path, error))?;
        let damaged = || StoreError::damaged(&path, "the checksum of its header is wrong");
        let (mut checked, sum) = header[..len].split_last_chunk::<8>().ok_or_else(damaged)?;
        if u64::from_le_bytes(*sum) != checksum::of(checked) {
            return Err(damaged());
        }
        let fields = (|| {
            let rest = &mut checked;
            Some((take(rest, 8)?, u32(rest)?, u32(rest)?, u64(rest)?, u64(rest)?, u64(rest)?))
        })();
        let (magic, version, own_number, mark, first_frame, end_before) =
            fields.ok_or_else(damaged)?;
        if version != VERSION {
            return Err(StoreError::Unusable(format!(
                "{} has version {version} of the format, and this broker reads version {VERSION}; use \
                 the version of the broker that wrote it",
                path.display()
            )));
        }
        if magic != MAGIC || own_number != number {
            return Err(StoreError::damaged(&path, "it is another file than its name says"));
        }
        Ok(Segment { number, mark, first_frame, end_before, file, path })
    }

    /// Reads a large value, and verifies its checksum.
    pub fn read_value(&self, at: u64, len: u32, checksum: u64) -> Result<Vec<u8>, StoreError> {
        let mut value = vec![0; len as usize];
        let read = self.file.read_at(at, &mut value);
        let read = read.map_err(|error| StoreError::io("read", &self.path, error))?;
        if read < value.len() || checksum::of(&value) != checksum {
            return Err(self.damaged(at, "the checksum of a value is wrong"));
        }
        Ok(value)
    }

    /// Returns an error that says where the segment is damaged.
    pub fn damaged(&self, at: u64, what: &str) -> StoreError {
        StoreError::damaged(&self.path, &format!("at byte {at}, {what}"))
    }
}

/// Returns a random mark for a new segment.
pub(super) fn random_mark() -> u64 {
    RandomState::new().hash_one(0).max(1)
}

const PREFIX: &str = "log-";

pub(super) fn name(number: u32) -> String {
    format!("{PREFIX}{number:010}")
}

/// Returns the numbers of the segments among these file names, in order.
pub(super) fn numbers(names: &[String]) -> Vec<u32> {
    let parse = |name: &String| {
        let number = name.strip_prefix(PREFIX)?.parse().ok()?;
        (self::name(number) == *name).then_some(number)
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(parse).collect();
    numbers.sort_unstable();
    numbers
}

/// Reads a small file that ends with the checksum of its content, and verifies it. Returns the content.
pub(super) fn read_checked(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, StoreError> {
    let path = disk.path(name);
    let file = disk.open(name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::damaged(&path, "it is missing"),
        _ => StoreError::io("open", &path, error),
    })?;
    let mut bytes = read_all(&*file).map_err(|error| StoreError::io("read", &path, error))?;
    let damaged = || StoreError::damaged(&path, "its checksum is wrong");
    let (content, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
    if u64::from_le_bytes(*sum) != checksum::of(content) {
        return Err(damaged());
    }
    bytes.truncate(bytes.len() - 8);
    Ok(bytes)
}
