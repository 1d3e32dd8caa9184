//! The port: what the rest of the broker requires of a storage engine.

use crate::{Batch, StoreError};
use std::ops::ControlFlow;

/// Names one of the ordered maps of a store: the index of its name in the list given when the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(pub u8);

/// Callback of a scan: called with each key and value; returns `ControlFlow::Break` to end the scan.
///
/// The callback must not call the store that it visits. The store may be waiting to be reopened after an error, and
/// that waits for the scan to end: the two would deadlock.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Several ordered maps of bytes to bytes that change together, in batches.
///
/// What must hold in every engine:
///
/// - **Keys** have 1 to 65535 bytes and are ordered bytewise. **Values** have 0 to 2^32 - 1 bytes.
/// - **Commits are atomic and ordered.** After a crash at any time the store has the effects of a prefix of the
///   commits, in the order of their calls. No commit is applied in part.
/// - **Commits are durable on return.** A batch whose [`commit`](Self::commit) returned `Ok` is in that prefix, even
///   after `kill -9` or a power cut.
/// - **A commit that returned an error has no effect now.** If it failed while it was being written, it may have an
///   effect after a crash. The caller commits it again; repeating puts and removals is harmless.
/// - **Reads see all returned commits**, and never a part of one.
/// - **Nothing is silently wrong.** A record is read as it was written, or the read returns [`StoreError::Corrupt`].
pub trait Store: Send + Sync {
    /// Returns the value of a key, if the key exists.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the keys that begin with `prefix` and are not less than `from`, in key order, until there are no more or
    /// `visit` breaks. An empty `prefix` or `from` excludes nothing. The scan sees the store as it was at the time of
    /// the call.
    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    /// Applies all changes of the batch, in their order, and makes them durable. An empty batch does nothing.
    /// Concurrent calls are served one after the other.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is too little free space. This is checked before anything is written, and only for
    /// a batch that [needs room](Batch::needs_room). [`StoreError::Io`] if the disk failed; the next commit tries to
    /// recover by itself.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Checks that there is free space for more commits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is not; [`StoreError::Io`] if the free space cannot be determined.
    fn room(&self) -> Result<(), StoreError>;

    /// Takes a snapshot of the store as it is now, which can be read while the store changes. An engine keeps
    /// everything that the snapshot sees until the snapshot is dropped, so it must not be kept for long.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError>;

    /// Approximate bytes that the store takes on disk, or in memory for an engine without a disk.
    fn disk_bytes(&self) -> u64;
}

/// A store as it was when the snapshot was taken.
pub trait Snapshot: Send {
    /// Visits all records of a keyspace in key order, until `visit` breaks.
    fn scan(&self, keyspace: Keyspace, visit: Visit<'_>) -> Result<(), StoreError>;
}

/// Returns the least key that is greater than all keys that begin with `prefix`, or `None` if there is no such key.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_all_that_begin_with_it() {
        assert_eq!(end_of_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end_of_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(end_of_prefix(&[0xff]), None);
        assert_eq!(end_of_prefix(b""), None);
    }
}
