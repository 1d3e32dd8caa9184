//! The last change of each key, between two commits.

use std::hash::Hash;
use std::mem;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// What a commit does to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// Puts a value under a key that the store is known not to have: if the key goes before it is
    /// written, there is nothing to write at all.
    New(T),
    /// Puts a value under a key that the store may have.
    Put(T),
    /// Removes the key.
    Remove,
}

impl<T> Change<T> {
    /// This change and then `later` as one; none when the two come to nothing.
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

    /// The value that the key has afterwards.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::New(value) | Self::Put(value) => Some(value),
            Self::Remove => None,
        }
    }

    /// The same change for when it is not known what the store has.
    fn in_doubt(self) -> Self {
        match self {
            Self::New(value) => Self::Put(value),
            other => other,
        }
    }
}

/// About how many bytes a value takes in a batch.
pub(super) trait Weigh {
    fn weight(&self) -> usize;
}

/// The last change of each key.
#[derive(Debug)]
pub(super) struct Changes<K, V> {
    by_key: HashMap<K, Change<V>, FixedState>,
    puts: Puts,
}

/// What some changes put.
#[derive(Debug, Default)]
struct Puts {
    count: usize,
    bytes: usize,
}

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self { by_key: HashMap::default(), puts: Puts::default() }
    }
}

impl<K: Eq + Hash, V: Weigh> Changes<K, V> {
    /// Notes what happens to `key` after all that was noted before.
    pub fn note(&mut self, key: K, later: Change<V>) {
        match self.by_key.entry(key) {
            Entry::Vacant(vacant) => {
                self.puts.add(&later);
                vacant.insert(later);
            }
            Entry::Occupied(mut occupied) => {
                let earlier = mem::replace(occupied.get_mut(), Change::Remove);
                self.puts.subtract(&earlier);
                match earlier.then(later) {
                    Some(both) => {
                        self.puts.add(&both);
                        occupied.insert(both);
                    }
                    None => drop(occupied.remove()),
                }
            }
        }
    }

    /// Notes all of `later`.
    pub fn append(&mut self, later: Self) {
        for (key, change) in later.by_key {
            self.note(key, change);
        }
    }

    /// The same changes for when it is not known what the store has.
    pub fn in_doubt(mut self) -> Self {
        for change in self.by_key.values_mut() {
            *change = mem::replace(change, Change::Remove).in_doubt();
        }
        self
    }

    /// The value that a key gets, if it gets one.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key)?.value()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &Change<V>)> {
        self.by_key.iter()
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// How many keys get a value.
    pub fn puts(&self) -> usize {
        self.puts.count
    }

    /// About how many bytes the values are.
    pub fn bytes(&self) -> usize {
        self.puts.bytes
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
