//! The one hash function of an index.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// Into how many parts the large tables are split. A power of two.
pub(super) const SHARDS: usize = 16;

/// The part for a hash. By bits that the tables do not use: they take buckets from the low bits,
/// tags from the highest seven.
pub(super) fn shard(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

/// Hashes topics, levels and edges; seeded, because clients choose the topics.
#[derive(Clone, Copy)]
pub(super) struct Hashing(u64);

impl Hashing {
    pub(super) fn with_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn text(self, text: &str) -> u64 {
        self.bytes(text.as_bytes())
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> u64 {
        let mut hasher = FixedState::with_seed(self.0).build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }

    pub(super) fn pair(self, first: u32, second: u32) -> u64 {
        self.number((u64::from(first) << 32) | u64::from(second))
    }

    pub(super) fn number(self, number: u64) -> u64 {
        FixedState::with_seed(self.0).hash_one(number)
    }
}

/// Hashes the keys of subscribers. The broker gives them, not a client: they need no seed.
pub(super) type KeyHasher = FixedState;

pub(super) fn hash_key(key: u64) -> u64 {
    KeyHasher::default().hash_one(key)
}
