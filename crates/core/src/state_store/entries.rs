//! The keys of a partition: found by a hash, listed in the order of their bytes.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap;

use super::entry::Entry;

/// All existing keys of a partition.
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_key: HashMap<Arc<[u8]>, Entry>,
    in_order: BTreeSet<Arc<[u8]>>,
}

impl Entries {
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.by_key.get(key)
    }

    pub fn get_key_value(&self, key: &[u8]) -> Option<(&Arc<[u8]>, &Entry)> {
        self.by_key.get_key_value(key)
    }

    /// Inserts a key, and returns the entry that it replaces.
    pub fn insert(&mut self, key: Arc<[u8]>, entry: Entry) -> Option<Entry> {
        let before = self.by_key.insert(Arc::clone(&key), entry);
        if before.is_none() {
            self.in_order.insert(key);
        }
        before
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<(Arc<[u8]>, Entry)> {
        let removed = self.by_key.remove_entry(key)?;
        self.in_order.remove(key);
        Some(removed)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Entry)> {
        self.by_key.iter()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The keys that begin with `prefix` and come after `after`, in the order of their bytes.
    pub fn range<'a>(
        &'a self,
        prefix: &[u8],
        after: &[u8],
    ) -> impl Iterator<Item = (&'a Arc<[u8]>, &'a Entry)> {
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let keys = self.in_order.range::<[u8], _>((from, Bound::Unbounded));
        let keys = keys.take_while(move |key| key.starts_with(prefix));
        keys.map(|key| (key, self.get(key).expect("what has an order is there")))
    }
}
