//! Free space on the disk, asked for before it is needed.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The disk is not asked again before this much has been written or this long has passed. What it
/// writes beyond the reserve meanwhile is small against a reserve.
const CREDIT_BYTES: u64 = 4 << 20;
const CREDIT_TIME: Duration = Duration::from_millis(500);

pub(super) struct FreeSpace {
    dir: PathBuf,
    reserve: u64,
    /// Bytes that may be written without asking, until it is too long ago.
    credit: u64,
    asked: Option<Instant>,
}

impl FreeSpace {
    pub fn new(dir: &Path, reserve: u64) -> FreeSpace {
        FreeSpace { dir: dir.to_owned(), reserve, credit: 0, asked: None }
    }

    /// Whether `bytes` may be written.
    pub fn ask(&mut self, bytes: usize) -> Result<(), StoreError> {
        let bytes = bytes as u64;
        if self.credit < bytes || self.asked.is_none_or(|asked| asked.elapsed() >= CREDIT_TIME) {
            let free = free_bytes(&self.dir)?;
            if free < self.reserve + bytes {
                self.asked = None;
                return Err(StoreError::Full { free, reserve: self.reserve });
            }
            self.credit = CREDIT_BYTES.max(bytes);
            self.asked = Some(Instant::now());
        }
        self.credit -= bytes;
        Ok(())
    }
}

fn free_bytes(dir: &Path) -> Result<u64, StoreError> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| StoreError::io("ask for the free space of", dir, error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
