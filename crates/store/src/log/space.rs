//! Free space on the disk, asked for before it is needed.

use super::disk::Disk;
use crate::StoreError;
use std::time::{Duration, Instant};

/// The disk is not asked again before this much has been written or this long has passed. What is
/// written beyond the reserve meanwhile is small against a reserve.
const CREDIT_BYTES: u64 = 4 << 20;
const CREDIT_TIME: Duration = Duration::from_millis(500);

pub(super) struct FreeSpace {
    reserve: u64,
    /// Bytes that may be written without asking, until it is too long ago.
    credit: u64,
    asked: Option<Instant>,
}

impl FreeSpace {
    pub fn new(reserve: u64) -> FreeSpace {
        FreeSpace { reserve, credit: 0, asked: None }
    }

    /// Whether `bytes` may be written.
    pub fn ask(&mut self, disk: &dyn Disk, bytes: usize) -> Result<(), StoreError> {
        let bytes = bytes as u64;
        if self.credit < bytes || self.asked.is_none_or(|asked| asked.elapsed() >= CREDIT_TIME) {
            let free = disk.free().map_err(|error| {
                StoreError::io("ask for the free space of", &disk.path(""), error)
            })?;
            if free < self.reserve.saturating_add(bytes) {
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
