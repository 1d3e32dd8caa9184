//! One process in a data directory at a time.

use crate::StoreError;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

const NAME: &str = "lock";

/// Held until it is dropped, or the process ends however it may.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub fn acquire(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join(NAME);
        let fail = |error| StoreError::io("lock", &path, error);
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Lock { _file: file })
    }
}

/// Says who has it, if that is known.
fn in_use(dir: &Path, file: &mut File) -> StoreError {
    let mut owner = String::new();
    let known = Read::by_ref(file).take(20).read_to_string(&mut owner).is_ok();
    let owner = owner.trim();
    let owner =
        if known && !owner.is_empty() { format!(" (process {owner})") } else { String::new() };
    StoreError::Unusable(format!(
        "the data directory {} is used by another broker{owner}; stop that one, or give this one a \
         directory of its own",
        dir.display()
    ))
}
