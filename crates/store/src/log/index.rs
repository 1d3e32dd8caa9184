//! The keys of one keyspace in memory, in order, each with its value or the place of its value.
//!
//! Leaves are shared with the scans and snapshots that read them (copy-on-write). Reading a past
//! state costs a writer a copy of each leaf that changes, and no waiting.
//!
//! What must hold: a leaf has the keys from its bound up to the bound of the next leaf. The first
//! bound is the empty key, and is never removed.

use super::leaf::{Entry, Gone, LEAF_LEN_MAX, Leaf};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct Index {
    leaves: BTreeMap<Arc<[u8]>, Arc<Leaf>>,
}

impl Index {
    pub fn new() -> Index {
        Index { leaves: BTreeMap::from([(Arc::default(), Arc::default())]) }
    }

    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        let (_, leaf) = self.leaves.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        leaf.get(key)
    }

    /// Adds an entry. Returns what its key had before.
    pub fn insert(&mut self, entry: &Entry<'_>) -> Option<Gone> {
        loop {
            let leaf = Arc::make_mut(self.leaf_of(entry.key).1);
            if let Ok(gone) = leaf.insert(entry) {
                return gone;
            }
            let (bound, right) = leaf.split(entry.key);
            self.leaves.insert(Arc::from(bound), Arc::new(right));
        }
    }

    /// Removes a key. Returns what the key had.
    pub fn remove(&mut self, key: &[u8]) -> Option<Gone> {
        let (bound, leaf) = self.leaf_of(key);
        let leaf = Arc::make_mut(leaf);
        let gone = leaf.remove(key)?;
        if leaf.len() == 0 && !bound.is_empty() {
            let bound = bound.clone();
            self.leaves.remove(&bound);
        } else if leaf.is_wasteful() {
            leaf.pack();
            if leaf.live_len() < LEAF_LEN_MAX / 4 {
                let bound = bound.clone();
                self.merge(&bound);
            }
        }
        Some(gone)
    }

    /// Returns the leaves with the keys from `from` up to `end`, in order, as they are now.
    pub fn leaves(&self, from: &[u8], end: Option<&[u8]>) -> Vec<Arc<Leaf>> {
        let first = self.leaves.range::<[u8], _>((Unbounded, Included(from))).next_back();
        let end = end.map_or(Unbounded, Excluded);
        let empty = matches!(end, Excluded(end) if end <= from);
        let rest = (!empty).then(|| self.leaves.range::<[u8], _>((Excluded(from), end)));
        first.into_iter().chain(rest.into_iter().flatten()).map(|(_, leaf)| leaf.clone()).collect()
    }

    fn leaf_of(&mut self, key: &[u8]) -> (&Arc<[u8]>, &mut Arc<Leaf>) {
        let at_most = (Unbounded, Included(key));
        self.leaves.range_mut::<[u8], _>(at_most).next_back().expect("there is the empty bound")
    }

    /// Merges a small leaf with a neighbour, if that is small too.
    fn merge(&mut self, bound: &Arc<[u8]>) {
        let mut before = self.leaves.range::<[u8], _>((Unbounded, Excluded(&**bound)));
        if let Some((before, _)) = before.next_back() {
            let before = before.clone();
            if self.absorb_next(&before) {
                return;
            }
        }
        self.absorb_next(bound);
    }

    /// Merges the next leaf into the leaf at `bound`, if both are small. Returns whether it did.
    fn absorb_next(&mut self, bound: &Arc<[u8]>) -> bool {
        let mut both = self.leaves.range_mut::<[u8], _>((Included(&**bound), Unbounded));
        let (Some((_, leaf)), Some((next_bound, next))) = (both.next(), both.next()) else {
            return false;
        };
        if leaf.live_len() + next.live_len() > LEAF_LEN_MAX / 2 {
            return false;
        }
        let next_bound = next_bound.clone();
        Arc::make_mut(leaf).absorb(next);
        self.leaves.remove(&next_bound);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf::{Place, Value};
    use super::*;
    use proptest::prelude::*;

    fn place(number: u32) -> Place {
        Place { segment: number, ordinal: number + 1 }
    }

    fn contents(index: &Index) -> Vec<(Vec<u8>, u32)> {
        let leaves = index.leaves(b"", None);
        let entries = leaves.iter().flat_map(|leaf| (0..leaf.len()).map(|at| leaf.entry(at)));
        entries.map(|entry| (entry.key.to_vec(), entry.place.segment)).collect()
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => proptest::collection::vec(0..4_u8, 1..6),
            2 => (0..2000_u16).prop_map(|number| number.to_be_bytes().to_vec()),
            1 => (0..6_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte % 3; len * 1500 + 1]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn is_an_ordered_map(
            changes in proptest::collection::vec((key(), any::<bool>(), 0..80_usize), 1..1500)
        ) {
            let mut index = Index::new();
            let mut model = BTreeMap::new();
            let before = index.clone();
            for (number, (key, put, value_len)) in changes.into_iter().enumerate() {
                let number = number as u32;
                let value = vec![9; value_len];
                let value = match value_len {
                    0..=64 => Value::Held(&value),
                    _ => Value::Stored { at: number, len: value_len as u32, checksum: 3 },
                };
                let gone = match put {
                    true => index.insert(&Entry { key: &key, place: place(number), value }),
                    false => index.remove(&key),
                };
                let expected = match put {
                    true => model.insert(key.clone(), (number, value_len)),
                    false => model.remove(&key),
                };
                let expected = expected.map(|(number, value_len)| Gone {
                    place: place(number),
                    disk_len: super::super::frame::disk_len(&key, value_len),
                });
                prop_assert_eq!(gone, expected);
                prop_assert_eq!(index.get(&key).is_some(), put);
            }
            let expected: Vec<_> =
                model.into_iter().map(|(key, (number, _))| (key, number)).collect();
            prop_assert_eq!(contents(&index), expected);
            prop_assert!(contents(&before).is_empty());
        }
    }

    #[test]
    fn a_queue_fills_its_leaves_and_gives_them_back() {
        let mut index = Index::new();
        for number in 0..100_000_u32 {
            let key = [b"tenant-and-session-".as_slice(), &number.to_be_bytes()].concat();
            index.insert(&Entry { key: &key, place: place(number), value: Value::Held(&[0; 32]) });
        }
        let bytes: usize = index.leaves(b"", None).iter().map(|leaf| leaf.live_len()).sum();
        assert!(bytes > index.leaves.len() * LEAF_LEN_MAX * 9 / 10, "leaves are full");
        for number in 0..100_000_u32 {
            let key = [b"tenant-and-session-".as_slice(), &number.to_be_bytes()].concat();
            assert!(index.remove(&key).is_some());
        }
        assert_eq!(index.leaves.len(), 1);
    }

    #[test]
    fn what_is_left_of_many_leaves_is_brought_together() {
        let mut index = Index::new();
        let keys = || (0..50_000_u32).map(|number| number.to_be_bytes());
        for key in keys() {
            index.insert(&Entry { key: &key, place: place(1), value: Value::Held(&[0; 32]) });
        }
        let full = index.leaves.len();
        for key in keys().filter(|key| key[3] % 64 != 0) {
            index.remove(&key);
        }
        assert!(index.leaves.len() < full / 4, "{} of {full}", index.leaves.len());
    }
}
