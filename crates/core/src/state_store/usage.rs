//! The quota of a tenant, and how much of it is used.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ENTRY_BYTES;

/// The quota of a tenant in the state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of keys.
    pub keys: u64,
    /// Maximum number of bytes: all keys, values, fencing tokens and names of users, and each watched key once for each of its
    /// watchers; with [`ENTRY_BYTES`] added for each key and each watch.
    pub bytes: u64,
    /// Maximum size of one value, in bytes.
    pub value_bytes: u64,
    /// Maximum number of watches: each watched key counts once for each of its watchers.
    pub watchers: u64,
}

impl Limits {
    /// No limits.
    pub const UNBOUNDED: Self =
        Self { keys: u64::MAX, bytes: u64::MAX, value_bytes: u64::MAX, watchers: u64::MAX };
}

/// The limit because of which a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// [`Limits::keys`].
    Keys,
    /// [`Limits::bytes`].
    Bytes,
    /// [`Limits::value_bytes`].
    ValueBytes,
    /// [`Limits::watchers`].
    Watchers,
    /// [`Requesting::keys`](super::Requesting::keys).
    UserKeys,
    /// [`Requesting::bytes`](super::Requesting::bytes).
    UserBytes,
}

/// The part of its quota that a tenant uses, in all its partitions together. The partitions have no common lock, so
/// each counter is checked and taken by one atomic operation.
#[derive(Debug, Default)]
pub struct Usage {
    keys: AtomicU64,
    bytes: AtomicU64,
    watchers: AtomicU64,
    most_watchers: AtomicU64,
    answers: AtomicU64,
    expired: AtomicU64,
}

impl Usage {
    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes used by keys and watches, counted as in [`Limits::bytes`].
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of watches: each watched key counts once for each of its watchers.
    pub fn watchers(&self) -> u64 {
        self.watchers.load(Ordering::Relaxed)
    }

    /// The most watchers that one key has had since the tenant last had no watches.
    pub fn most_watchers(&self) -> u64 {
        self.most_watchers.load(Ordering::Relaxed)
    }

    /// Number of answers that are kept for requests that may be sent again.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Number of keys that have expired since the start, whether a timer or a command noticed it.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Takes the quota for a new key of this size.
    pub(super) fn add_key(&self, size: u64, limits: &Limits) -> Result<(), Exceeded> {
        take(&self.keys, 1, limits.keys, Exceeded::Keys)?;
        let taken = take(&self.bytes, size, limits.bytes, Exceeded::Bytes);
        taken.inspect_err(|_| give_back(&self.keys, 1))
    }

    /// Takes or gives back the quota for a key whose size changes. A key may always shrink.
    pub(super) fn resize_key(&self, old: u64, new: u64, limits: &Limits) -> Result<(), Exceeded> {
        match new.checked_sub(old) {
            Some(growth) => take(&self.bytes, growth, limits.bytes, Exceeded::Bytes),
            None => {
                give_back(&self.bytes, old - new);
                Ok(())
            }
        }
    }

    /// Gives back the quota of a removed key of this size.
    pub(super) fn remove_key(&self, size: u64) {
        give_back(&self.keys, 1);
        give_back(&self.bytes, size);
    }

    /// Counts an expired key.
    pub(super) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the quota for a watch on a key of this length, which then has `of_key` watchers.
    pub(super) fn add_watcher(
        &self,
        key_len: usize,
        of_key: u64,
        limits: &Limits,
    ) -> Result<(), Exceeded> {
        take(&self.watchers, 1, limits.watchers, Exceeded::Watchers)?;
        take(&self.bytes, watcher_size(key_len), limits.bytes, Exceeded::Bytes)
            .inspect_err(|_| give_back(&self.watchers, 1))?;
        self.most_watchers.fetch_max(of_key, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back the quota of a watch on a key of this length.
    pub(super) fn remove_watcher(&self, key_len: usize) {
        give_back(&self.watchers, 1);
        give_back(&self.bytes, watcher_size(key_len));
        if self.watchers() == 0 {
            self.most_watchers.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn add_answers(&self, count: u64) {
        self.answers.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn remove_answers(&self, count: u64) {
        give_back(&self.answers, count);
    }
}

/// Size of a watch: the key is kept here and with each connection that watches it, so it counts once for each watcher.
fn watcher_size(key_len: usize) -> u64 {
    ENTRY_BYTES + key_len as u64
}

/// Adds `amount` to a counter if that stays within the limit. An amount of 0 always succeeds.
fn take(counter: &AtomicU64, amount: u64, limit: u64, exceeded: Exceeded) -> Result<(), Exceeded> {
    let more = |used: u64| {
        let sum = used.saturating_add(amount);
        (amount == 0 || sum <= limit).then_some(sum)
    };
    let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    taken.map(drop).map_err(|_| exceeded)
}

fn give_back(counter: &AtomicU64, amount: u64) {
    let before = counter.fetch_sub(amount, Ordering::Relaxed);
    debug_assert!(before >= amount, "only what was taken is given back");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_takes_nothing() {
        let (usage, limits) =
            (Usage::default(), Limits { keys: 2, bytes: 10, ..Limits::UNBOUNDED });
        assert_eq!(usage.add_key(6, &limits), Ok(()));
        assert_eq!(usage.add_key(5, &limits), Err(Exceeded::Bytes));
        assert_eq!((usage.keys(), usage.bytes()), (1, 6));
        assert_eq!(usage.add_key(4, &limits), Ok(()));
        assert_eq!(usage.add_key(0, &limits), Err(Exceeded::Keys));
        usage.remove_key(4);
        assert_eq!((usage.keys(), usage.bytes()), (1, 6));
    }

    #[test]
    fn what_is_watched_takes_bytes() {
        let usage = Usage::default();
        let limits = Limits { watchers: 3, bytes: 2 * ENTRY_BYTES + 10, ..Limits::UNBOUNDED };
        assert_eq!(usage.add_watcher(6, 1, &limits), Ok(()));
        assert_eq!(usage.add_watcher(5, 1, &limits), Err(Exceeded::Bytes));
        assert_eq!((usage.watchers(), usage.bytes()), (1, ENTRY_BYTES + 6));
        assert_eq!(usage.add_key(ENTRY_BYTES + 5, &limits), Err(Exceeded::Bytes));
        assert_eq!(usage.add_watcher(4, 1, &limits), Ok(()));
        usage.remove_watcher(6);
        usage.remove_watcher(4);
        assert_eq!((usage.watchers(), usage.bytes()), (0, 0));
    }

    #[test]
    fn a_key_may_always_get_smaller() {
        let usage = Usage::default();
        usage.add_key(10, &Limits::UNBOUNDED).unwrap();
        let limits = Limits { bytes: 3, ..Limits::UNBOUNDED };
        assert_eq!(usage.resize_key(10, 8, &limits), Ok(()));
        assert_eq!(usage.resize_key(8, 8, &limits), Ok(()));
        assert_eq!(usage.resize_key(8, 9, &limits), Err(Exceeded::Bytes));
        assert_eq!(usage.bytes(), 8);
    }
}
