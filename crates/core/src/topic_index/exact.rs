//! The filters without wildcards, which match exactly the topic of the same name.

use hashbrown::HashTable;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Subscriber;
use super::hashing::{Hashing, SHARDS, shard};
use super::subscribers::Subscribers;

/// A hash map from topic to subscribers, in shards with a lock each. Growing moves one shard at a
/// time.
pub(super) struct Exact<S> {
    shards: [Shard<S>; SHARDS],
}

/// One shard on a cache line of its own, so that readers of two shards do not disturb each other.
#[repr(align(64))]
struct Shard<S>(RwLock<Table<S>>);

/// The filters of one shard.
pub(super) struct Table<S> {
    filters: HashTable<(Box<str>, Subscribers<S>)>,
}

impl<S: Subscriber> Exact<S> {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Shard(RwLock::default())) }
    }

    pub(super) fn read(&self, hash: u64) -> RwLockReadGuard<'_, Table<S>> {
        self.shard(hash).0.read()
    }

    pub(super) fn write(&self, hash: u64) -> RwLockWriteGuard<'_, Table<S>> {
        self.shard(hash).0.write()
    }

    /// The table of the shard with this index.
    pub(super) fn table(&self, index: usize) -> RwLockReadGuard<'_, Table<S>> {
        self.shards[index].0.read()
    }

    fn shard(&self, hash: u64) -> &Shard<S> {
        &self.shards[shard(hash)]
    }
}

impl<S: Subscriber> Table<S> {
    /// Returns the subscribers of the filter that equals `topic`.
    pub(super) fn find(&self, hash: u64, topic: &str) -> Option<&Subscribers<S>> {
        self.filters.find(hash, |(filter, _)| **filter == *topic).map(|(_, found)| found)
    }

    /// All filters, in no particular order.
    pub(super) fn filters(&self) -> impl Iterator<Item = (&str, &Subscribers<S>)> {
        self.filters.iter().map(|(filter, subscribers)| (&**filter, subscribers))
    }

    /// Applies `change` to the subscribers of `filter`, which is created if it does not exist.
    pub(super) fn insert<T>(
        &mut self,
        hashing: Hashing,
        hash: u64,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> T {
        let entry = self.filters.entry(
            hash,
            |(other, _)| **other == *filter,
            |(other, _)| hashing.text(other),
        );
        change(&mut entry.or_insert_with(|| (filter.into(), Subscribers::None)).into_mut().1)
    }

    /// Applies `change` to the subscribers of `filter`, and removes the filter if it has none left.
    /// Returns `None` if there is no such filter.
    pub(super) fn remove<T>(
        &mut self,
        hashing: Hashing,
        hash: u64,
        filter: &str,
        change: impl FnOnce(&mut Subscribers<S>) -> T,
    ) -> Option<T> {
        let same = |(other, _): &(Box<str>, _)| **other == *filter;
        let mut entry = self.filters.find_entry(hash, same).ok()?;
        let answer = change(&mut entry.get_mut().1);
        if entry.get().1.is_empty() {
            entry.remove();
            if self.filters.len() < self.filters.capacity() / 8 {
                let room = 2 * self.filters.len();
                self.filters.shrink_to(room, |(other, _)| hashing.text(other));
            }
        }
        Some(answer)
    }
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self { filters: HashTable::new() }
    }
}
