//! What the rest of the broker asks of an engine.

use crate::{Batch, StoreError};
use std::ops::ControlFlow;

/// One of the ordered maps of a store: the index of its name in the list given when the store was
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(pub u8);

/// Called with each key and value of a scan; breaks to end it.
///
/// It must not call the store that it visits: the store may be waiting to be reopened after an
/// error, and would wait for the visit that waits for it.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Some ordered maps of bytes to bytes that change together, in batches.
///
/// What must hold in every engine:
///
/// - **Keys** have 1 to 65535 bytes and are ordered as bytes. **Values** have 0 to 2^32 - 1 bytes.
/// - **Commits are atomic and ordered.** After a crash at any time the store has the effects of a
///   prefix of the commits, in the order of their calls, and none in part.
/// - **Commits are durable on return.** A batch whose [`commit`](Self::commit) returned `Ok` is in
///   that prefix, whatever happens: `kill -9`, power cut.
/// - **A commit that returned an error has no effect now.** After a crash it may have had one, if
///   it failed while it was being written. The caller commits it again: puts and removals may be repeated.
/// - **Reads see all returned commits**, and never a part of one.
/// - **Nothing is silently wrong.** A record is read as it was written, or the read is
///   [`StoreError::Corrupt`].
pub trait Store: Send + Sync {
    /// The value of a key, if there is one.
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits in the order of keys those that begin with `prefix` and are not less than `from`,
    /// until there are no more or `visit` breaks. Both may be empty, which excludes nothing. Sees the
    /// store as it was at the call.
    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    /// Applies all changes of the batch, in their order, and makes them durable. An empty batch does
    /// nothing. Callers are served one after the other.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is too little space; asked before anything is written, and only of a
    /// batch that [needs room](Batch::needs_room). [`StoreError::Io`] if the disk failed; the next commit tries to
    /// recover by itself.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Whether there is room for more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is not; [`StoreError::Io`] if the disk does not say.
    fn room(&self) -> Result<(), StoreError>;

    /// The store as it is now, to be read while it changes. An engine keeps what the snapshot sees
    /// until it is dropped, so it must not be kept for long.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError>;

    /// Bytes that the store takes on disk, about; in memory, for an engine without a disk.
    fn disk_bytes(&self) -> u64;
}

/// A store as it was when the snapshot was taken.
pub trait Snapshot: Send {
    /// Visits all of a keyspace in the order of keys, until `visit` breaks.
    fn scan(&self, keyspace: Keyspace, visit: Visit<'_>) -> Result<(), StoreError>;
}

/// The least key that is greater than all that begin with `prefix`, or `None` if there is no such
/// key.
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
