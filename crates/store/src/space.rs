//! Free space on the disk, checked before it is needed.

use crate::StoreError;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// After a check, the disk is asked again only when this many bytes have been written or this much
/// time has passed. What is written beyond the reserve in the meantime is small compared with the
/// reserve.
const CREDIT_BYTES: u64 = 4 << 20;
const CREDIT_TIME: Duration = Duration::from_millis(500);

/// Keeps a reserve of the disk free.
pub(crate) struct FreeSpace {
    reserve: u64,
    /// Bytes that may be written without asking the disk again, until [`CREDIT_TIME`] has passed.
    credit: u64,
    asked: Option<Instant>,
}

impl FreeSpace {
    pub fn new(reserve: u64) -> FreeSpace {
        FreeSpace { reserve, credit: 0, asked: None }
    }

    /// Checks that `bytes` may be written to a disk whose free space `free` returns.
    pub fn ask(
        &mut self,
        bytes: usize,
        free: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        let bytes = bytes as u64;
        if self.credit < bytes || self.asked.is_none_or(|asked| asked.elapsed() >= CREDIT_TIME) {
            let free = free()?;
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

/// Returns the number of bytes that can still be written below a directory.
///
/// # Errors
/// The operating system does not know the directory.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_that_no_disk_has_refuses_everything() {
        let mut space = FreeSpace::new(u64::MAX);
        assert!(matches!(space.ask(1, || Ok(u64::MAX - 1)), Err(StoreError::Full { .. })));
    }

    #[test]
    fn the_disk_is_asked_when_the_credit_is_used_up() {
        let mut space = FreeSpace::new(1000);
        space.ask(10, || Ok(1010)).unwrap();
        space.ask(10, || panic!("there is credit")).unwrap();
        assert!(space.ask(CREDIT_BYTES as usize, || Ok(1010)).is_err());
        assert!(space.ask(1, || Ok(1000)).is_err(), "asked again after a refusal");
        space.ask(1, || Ok(1001)).unwrap();
    }
}
