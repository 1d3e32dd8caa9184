//! The hash function of an index.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// Number of shards into which the large tables are split. A power of two.
pub(super) const SHARDS: usize = 16;

/// The shard of a hash. Uses bits that the tables do not use: they take buckets from the low bits,
/// and tags from the highest seven.
pub(super) fn shard(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

/// Hashes topics, levels and edges. Seeded, because clients choose the topics.
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

/// Hashes the keys of subscribers. Needs no seed, as the broker assigns the keys, not a client.
pub(super) type KeyHasher = FixedState;

pub(super) fn hash_key(key: u64) -> u64 {
    KeyHasher::default().hash_one(key)
}
