//! The file `commits` beside the database: the number of the last acknowledged commit.
//!
//! The file is written after each commit has become durable, and synced once a second. So it may lag behind the
//! database, and is never ahead of it. If it is ahead at the start, acknowledged commits were lost.

use crate::{StoreError, checksum, private};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, io::Read};

const NAME: &str = "commits";
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Length of the file in bytes: the number and its checksum, both little-endian.
const LEN: usize = 16;

pub(super) struct CommitMark {
    file: File,
    synced: Instant,
}

impl CommitMark {
    pub fn create(dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(NAME);
        private::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| file.write_all_at(&encode(0), 0).and_then(|()| file.sync_all()))
            .map_err(|error| StoreError::io("make", &path, error))
    }

    /// Opens the file. Returns it and its number. If a loss is accepted, an unreadable number counts as 0.
    pub fn open(dir: &Path, accept_loss: bool) -> Result<(CommitMark, u64), StoreError> {
        let path = dir.join(NAME);
        let fail = |error| StoreError::io("open", &path, error);
        let mut options = private::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(accept_loss)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        let mut bytes = Vec::with_capacity(LEN);
        Read::by_ref(&mut file).take(LEN as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
        let number = decode(&bytes).or(accept_loss.then_some(0));
        let number = number.ok_or_else(|| StoreError::damaged(&path, "its checksum is wrong"))?;
        Ok((CommitMark { file, synced: Instant::now() }, number))
    }

    pub fn write(&mut self, number: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(number), 0)?;
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync()?;
        }
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.synced = Instant::now();
        self.file.sync_data()
    }
}

/// Encodes the number and its checksum.
pub(super) fn encode(number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum = checksum::of(&bytes[..8]);
    bytes[8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == encode(number)).then_some(number)
}
