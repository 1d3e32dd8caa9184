//! The lock that gives a data directory to one process at a time.

use super::holder::{self, Holder};
use crate::{StoreError, private};
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

const NAME: &str = "lock";

/// The lock on a data directory. Held until it is dropped or the process ends, even by a kill.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub fn acquire(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join(NAME);
        let fail = |error| StoreError::io("lock", &path, error);
        let mut options = private::options();
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

    /// Returns whether a directory has a lock file, held or not.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(NAME).exists()
    }
}

/// Returns an error that says which process has the lock, and what to do.
fn in_use(dir: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let read = Read::by_ref(file).take(20).read_to_string(&mut text);
    let owner: Option<u32> = read.ok().and_then(|_| text.trim().parse().ok());
    StoreError::Unusable(refusal(dir, owner, holder::of(file)))
}

/// Composes the error text. `owner` is the process named in the lock file, which is or was a broker. `holder` is the
/// process that holds the lock.
fn refusal(dir: &Path, owner: Option<u32>, holder: Option<Holder>) -> String {
    let (dir, lock) = (dir.display(), dir.join(NAME));
    let lock = lock.display();
    match holder {
        Some(holder) if Some(holder.process) != owner => {
            let Holder { process, command } = holder;
            let command = if command.is_empty() { command } else { format!(" ({command})") };
            format!(
                "the data directory {dir} is locked by process {process}{command}, which is not the broker \
                 that used it last; end that process, or have it let go of {lock}, and start again"
            )
        }
        Some(Holder { process, .. }) => format!(
            "the data directory {dir} is used by another broker (process {process}); stop that one, or give \
             this one a directory of its own"
        ),
        None => {
            let last =
                owner.map(|owner| format!(", which was process {owner} there")).unwrap_or_default();
            format!(
                "the data directory {dir} is locked by a process that cannot be seen from here: of another \
                 user, in another container, or on another machine with which the directory is shared. \
                 Find it there with `fuser -v {lock}`, and stop it; it may be another broker{last}. Or give \
                 this one a directory of its own"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_who_and_what_to_do() {
        let dir = Path::new("/d");
        let holder = |process| Some(Holder { process, command: "flock /d/lock sleep 9".into() });
        let broker = refusal(dir, Some(7), holder(7));
        assert!(broker.contains("another broker (process 7); stop that one"), "{broker}");
        for owner in [None, Some(7)] {
            let foreign = refusal(dir, owner, holder(8));
            assert!(
                foreign.contains("process 8 (flock /d/lock sleep 9), which is not"),
                "{foreign}"
            );
            assert!(foreign.contains("let go of /d/lock"), "{foreign}");
        }
        let unseen = refusal(dir, Some(7), None);
        assert!(unseen.contains("fuser -v /d/lock") && unseen.contains("process 7"), "{unseen}");
    }
}
