//! Changes between two commits: of each key the last one.

use std::hash::Hash;
use std::mem;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// The change that a commit makes to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change<T> {
    /// Puts a value under a key that the store is known not to have. If the key is removed before
    /// the commit, nothing is written at all.
    New(T),
    /// Puts a value under a key that the store may have.
    Put(T),
    /// Removes the key.
    Remove,
}

impl<T> Change<T> {
    /// Combines this change with a later one; `None` if the two cancel each other.
    pub fn then(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::New(_), Self::New(value) | Self::Put(value)) => Some(Self::New(value)),
            (Self::New(_), Self::Remove) => None,
            (Self::Put(_) | Self::Remove, Self::New(value) | Self::Put(value)) => {
                Some(Self::Put(value))
            }
            (Self::Put(_) | Self::Remove, Self::Remove) => Some(Self::Remove),
        }
    }

    /// The value that the key has after the change.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::New(value) | Self::Put(value) => Some(value),
            Self::Remove => None,
        }
    }
}

/// A key in [`Changes`].
pub(super) trait Key: Eq + Hash {
    /// Length of the text at the end of the key, in bytes; 0 if the key consists of numbers.
    fn text_len(&self) -> usize {
        0
    }
}

/// A value whose size in a batch can be estimated.
pub(super) trait Weigh {
    fn weight(&self) -> usize;
}

/// Number of changes for which an empty set keeps memory; beyond that the memory is freed. Sets with more room than
/// they use are spread over more cache lines, which costs more than to grow again.
const KEPT_MAX: usize = 1024;

/// The last change of each key.
#[derive(Debug)]
pub(super) struct Changes<K, V> {
    by_key: HashMap<K, Change<V>, FixedState>,
    puts: Puts,
    /// Bytes of the texts of all keys.
    texts: usize,
    /// Number of changes that were superseded by a later one.
    spared: usize,
}

/// Number and size of the values that a set of changes puts.
#[derive(Debug, Default)]
struct Puts {
    count: usize,
    bytes: usize,
}

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self { by_key: HashMap::default(), puts: Puts::default(), texts: 0, spared: 0 }
    }
}

impl<K: Key, V: Weigh> Changes<K, V> {
    /// Notes a change of `key` that follows all changes noted before.
    pub fn note(&mut self, key: K, later: Change<V>) {
        match self.by_key.entry(key) {
            Entry::Vacant(vacant) => {
                self.puts.add(&later);
                self.texts += vacant.key().text_len();
                vacant.insert(later);
            }
            Entry::Occupied(mut occupied) => {
                self.spared += 1;
                let earlier = mem::replace(occupied.get_mut(), Change::Remove);
                self.puts.subtract(&earlier);
                match earlier.then(later) {
                    Some(both) => {
                        self.puts.add(&both);
                        occupied.insert(both);
                    }
                    None => self.texts -= occupied.remove_entry().0.text_len(),
                }
            }
        }
    }

    /// Whether a key is put that the store is known not to have.
    pub fn is_new(&self, key: &K) -> bool {
        matches!(self.by_key.get(key), Some(Change::New(_)))
    }

    /// Removes the change of a key, if there is one, as if the key had never changed.
    pub fn cancel(&mut self, key: &K) {
        if let Some((key, change)) = self.by_key.remove_entry(key) {
            self.spared += 1;
            self.puts.subtract(&change);
            self.texts -= key.text_len();
        }
    }

    /// Removes all changes and keeps the memory, up to [`KEPT_MAX`].
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_key.shrink_to(KEPT_MAX);
        self.puts = Puts::default();
        self.texts = 0;
        self.spared = 0;
    }

    /// The value that a key gets; `None` if the key is removed or does not change.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key)?.value()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &Change<V>)> {
        self.by_key.iter()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Number of changes that were superseded by later ones, and are not written.
    pub fn spared(&self) -> usize {
        self.spared
    }

    /// Number of keys that get a value.
    pub fn puts(&self) -> usize {
        self.puts.count
    }

    /// Approximate size, in bytes, of the values and of the texts of the keys.
    pub fn bytes(&self) -> usize {
        self.puts.bytes + self.texts
    }
}

impl Puts {
    fn add<T: Weigh>(&mut self, change: &Change<T>) {
        if let Some(value) = change.value() {
            self.count += 1;
            self.bytes += value.weight();
        }
    }

    fn subtract<T: Weigh>(&mut self, change: &Change<T>) {
        if let Some(value) = change.value() {
            self.count -= 1;
            self.bytes -= value.weight();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    impl Weigh for u8 {
        fn weight(&self) -> usize {
            usize::from(*self)
        }
    }

    impl Key for u8 {
        fn text_len(&self) -> usize {
            100 * usize::from(*self)
        }
    }

    type Model = BTreeMap<u8, u8>;

    /// Puts or removes a key in the model. Returns the matching change, which is `New` only if the
    /// model did not have the key.
    fn change(model: &mut Model, (key, value, says_new): (u8, Option<u8>, bool)) -> Change<u8> {
        match value {
            None => {
                model.remove(&key);
                Change::Remove
            }
            Some(value) => match model.insert(key, value) {
                None if says_new => Change::New(value),
                _ => Change::Put(value),
            },
        }
    }

    fn write(changes: &Changes<u8, u8>, model: &mut Model, is_first: bool) {
        for (key, change) in changes.iter() {
            match change {
                Change::New(value) if is_first => {
                    assert_eq!(model.insert(*key, *value), None, "it was new");
                }
                Change::New(value) => drop(model.insert(*key, *value)),
                Change::Put(value) => drop(model.insert(*key, *value)),
                Change::Remove => drop(model.remove(key)),
            }
        }
    }

    proptest! {
        #[test]
        fn changes_leave_what_their_history_does(
            steps in vec((0..6_u8, proptest::option::of(any::<u8>()), any::<bool>()), 0..60),
            before in proptest::collection::btree_map(0..6_u8, any::<u8>(), 0..6),
        ) {
            let mut after = before.clone();
            let mut all = Changes::default();
            for step in steps {
                all.note(step.0, change(&mut after, step));
            }
            let puts: Vec<u8> = all.iter().filter_map(|(_, change)| change.value().copied()).collect();
            prop_assert_eq!(all.puts(), puts.len());
            let values: usize = puts.iter().map(Weigh::weight).sum();
            let texts: usize = all.iter().map(|(key, _)| key.text_len()).sum();
            prop_assert_eq!(all.bytes(), values + texts);
            let mut written = before;
            write(&all, &mut written, true);
            prop_assert_eq!(&written, &after);
            // If it is not known whether the set was written, it is written once more.
            write(&all, &mut written, false);
            prop_assert_eq!(&written, &after);
        }
    }

    #[test]
    fn what_is_new_and_goes_comes_to_nothing() {
        let mut changes = Changes::<u8, u8>::default();
        changes.note(1, Change::New(5));
        changes.note(1, Change::Put(6));
        assert_eq!((changes.len(), changes.puts(), changes.bytes()), (1, 1, 106));
        changes.note(1, Change::Remove);
        assert_eq!((changes.len(), changes.puts(), changes.bytes()), (0, 0, 0));
    }
}
