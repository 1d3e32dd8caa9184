//! How much of its quota a tenant has used.

use std::sync::atomic::{AtomicU64, Ordering};

use statestore_proto::Refusal;

use super::ENTRY_BYTES;

/// How much of the state store a tenant may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Keys.
    pub keys: u64,
    /// Bytes of all keys, values and fencing tokens, and of all keys that are watched, once for each who
    /// watches; and [`ENTRY_BYTES`] for each of all these keys.
    pub bytes: u64,
    /// Bytes of one value.
    pub value_bytes: u64,
    /// Watched keys, once for each who watches.
    pub watchers: u64,
}

impl Limits {
    /// As much as there is.
    pub const UNBOUNDED: Self =
        Self { keys: u64::MAX, bytes: u64::MAX, value_bytes: u64::MAX, watchers: u64::MAX };
}

/// What a tenant uses, in all its partitions together. They do not hold a common lock, so what is taken
/// is taken by one operation that checks the limit.
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
    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes that they and those who watch take, as [`Limits::bytes`] counts.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many keys are watched, once for each who watches.
    pub fn watchers(&self) -> u64 {
        self.watchers.load(Ordering::Relaxed)
    }

    /// How many have watched one key, at most, since nobody watched any.
    pub fn most_watchers(&self) -> u64 {
        self.most_watchers.load(Ordering::Relaxed)
    }

    /// How many answers are kept for requests that may be sent again.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// How many keys have gone since the start because their time had come, whether a timer or a command
    /// has noticed it.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// A new key of this size.
    pub(super) fn add_key(&self, size: u64, limits: &Limits) -> Result<(), Refusal> {
        take(&self.keys, 1, limits.keys)?;
        take(&self.bytes, size, limits.bytes).inspect_err(|_| give_back(&self.keys, 1))
    }

    /// A key gets another size. It may always get smaller.
    pub(super) fn resize_key(&self, old: u64, new: u64, limits: &Limits) -> Result<(), Refusal> {
        match new.checked_sub(old) {
            Some(growth) => take(&self.bytes, growth, limits.bytes),
            None => {
                give_back(&self.bytes, old - new);
                Ok(())
            }
        }
    }

    /// A key of this size has gone.
    pub(super) fn remove_key(&self, size: u64) {
        give_back(&self.keys, 1);
        give_back(&self.bytes, size);
    }

    /// The time of a key has come.
    pub(super) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody watches a key of this length, which so many watch then.
    pub(super) fn add_watcher(
        &self,
        key_len: usize,
        of_key: u64,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        take(&self.watchers, 1, limits.watchers)?;
        take(&self.bytes, watcher_size(key_len), limits.bytes)
            .inspect_err(|_| give_back(&self.watchers, 1))?;
        self.most_watchers.fetch_max(of_key, Ordering::Relaxed);
        Ok(())
    }

    /// Somebody does not watch such a key any more.
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

/// The key is kept here and with each connection that watches it: it counts once for each.
fn watcher_size(key_len: usize) -> u64 {
    ENTRY_BYTES + key_len as u64
}

/// Takes so much, if that stays within the limit. Nothing can always be taken.
fn take(counter: &AtomicU64, amount: u64, limit: u64) -> Result<(), Refusal> {
    let more = |used: u64| {
        let sum = used.saturating_add(amount);
        (amount == 0 || sum <= limit).then_some(sum)
    };
    let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    taken.map(drop).map_err(|_| Refusal::QuotaExceeded)
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
        assert_eq!(usage.add_key(5, &limits), Err(Refusal::QuotaExceeded));
        assert_eq!((usage.keys(), usage.bytes()), (1, 6));
        assert_eq!(usage.add_key(4, &limits), Ok(()));
        assert_eq!(usage.add_key(0, &limits), Err(Refusal::QuotaExceeded));
        usage.remove_key(4);
        assert_eq!((usage.keys(), usage.bytes()), (1, 6));
    }

    #[test]
    fn what_is_watched_takes_bytes() {
        let usage = Usage::default();
        let limits = Limits { watchers: 3, bytes: 2 * ENTRY_BYTES + 10, ..Limits::UNBOUNDED };
        assert_eq!(usage.add_watcher(6, 1, &limits), Ok(()));
        assert_eq!(usage.add_watcher(5, 1, &limits), Err(Refusal::QuotaExceeded));
        assert_eq!((usage.watchers(), usage.bytes()), (1, ENTRY_BYTES + 6));
        assert_eq!(usage.add_key(ENTRY_BYTES + 5, &limits), Err(Refusal::QuotaExceeded));
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
        assert_eq!(usage.resize_key(8, 9, &limits), Err(Refusal::QuotaExceeded));
        assert_eq!(usage.bytes(), 8);
    }
}
