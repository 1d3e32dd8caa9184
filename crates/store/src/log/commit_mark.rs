//! The file `commits`: the number of the last frame that is durable.
//!
//! The file is written after each frame has become durable, and synced from time to time. So it may lag behind the log,
//! and is never ahead of it. If it is ahead at the start, acknowledged commits were lost. Without it, a flipped bit in
//! the last frame could not be told from a frame that was never finished.

use super::disk::{Disk, File, replace};
use super::segment::read_checked;
use crate::{StoreError, checksum};
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

pub(super) const NAME: &str = "commits";
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct CommitMark {
    file: Arc<dyn File>,
    synced: Instant,
}

impl CommitMark {
    /// Creates the file, and replaces any existing one.
    pub fn create(disk: &dyn Disk, number: u64) -> Result<CommitMark, StoreError> {
        let file = replace(disk, NAME, &encode(number))
            .map_err(|error| StoreError::io("make", &disk.path(NAME), error))?;
        Ok(CommitMark { file, synced: Instant::now() })
    }

    pub fn read(disk: &dyn Disk) -> Result<u64, StoreError> {
        let path = disk.path(NAME);
        let bytes = read_checked(disk, NAME)?;
        let number = bytes.try_into().map(u64::from_le_bytes);
        number.map_err(|_| StoreError::damaged(&path, "it has not 16 bytes"))
    }

    pub fn open(disk: &dyn Disk) -> Result<CommitMark, StoreError> {
        let file =
            disk.open(NAME).map_err(|error| StoreError::io("open", &disk.path(NAME), error))?;
        Ok(CommitMark { file, synced: Instant::now() })
    }

    pub fn write(&mut self, number: u64) -> io::Result<()> {
        self.file.write_at(0, &[&encode(number)])?;
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync()?;
        }
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.synced = Instant::now();
        self.file.sync()
    }
}

/// Encodes the number and its checksum.
fn encode(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum = checksum::of(&bytes[..8]);
    bytes[8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}
