//! All shards of the data directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use barid_core::commits::Commits;
use barid_core::ids::{ShardIndex, TenantNumber};
use barid_store::changelog::{Changelog, LocalLog};
use barid_store::{Snapshot, Store, StoreError};
use parking_lot::RwLock;

use super::DurableShard;
use super::shard::Common;
use crate::progress::{Progress, Sources};

/// Bytes that may wait for the commits of a shard before publishers that wait for it are not read from any more.
const PENDING_MAX: usize = 64 * 1024 * 1024;

/// The destination of durable changes: the log of each shard, and the store that contains what the log has.
pub struct Storage {
    /// The log and the store of each shard, in the order of the shard indexes; at least one.
    pub shards: Vec<(Box<dyn Changelog>, Arc<dyn Store>)>,
    /// The lock that the logs hold for reading while they commit.
    pub commits: Arc<RwLock<()>>,
}

impl Storage {
    /// Creates storage whose stores are their own logs.
    pub fn local(stores: &[Arc<dyn Store>]) -> Self {
        let commits = Arc::default();
        let shard = |store: &Arc<dyn Store>| (local_log(store, &commits), Arc::clone(store));
        Self { shards: stores.iter().map(shard).collect(), commits }
    }
}

fn local_log(store: &Arc<dyn Store>, commits: &Arc<RwLock<()>>) -> Box<dyn Changelog> {
    Box::new(LocalLog::new(Arc::clone(store), Arc::clone(commits)))
}

/// All shards, and what they share.
#[derive(Debug)]
pub struct Shards {
    /// The present tenure of each shard. The locks are held for no longer than it takes to copy it.
    shards: Box<[RwLock<Arc<DurableShard>>]>,
    common: Arc<Common>,
    /// Bytes of stored messages that wait in memory as well.
    in_memory: AtomicUsize,
    /// Maximum of `in_memory`. Beyond it, messages wait in the store only.
    in_memory_max: usize,
    /// The lock that the logs hold for reading while they commit.
    commits: Arc<RwLock<()>>,
    sources: Sources,
}

impl Shards {
    /// Creates the shards. At most about `in_memory_max` bytes of stored messages wait in memory as well.
    pub fn new(storage: Storage, in_memory_max: usize) -> Self {
        Self::among(storage, in_memory_max, [])
    }

    /// [`Self::new`], with further sources of progress, whose numbers follow those of the shards.
    pub(crate) fn among(
        storage: Storage,
        in_memory_max: usize,
        others: impl IntoIterator<Item = Arc<Progress>>,
    ) -> Self {
        let Storage { shards, commits } = storage;
        assert!(!shards.is_empty(), "a broker has a shard");
        let common = Arc::<Common>::default();
        let shard = |(index, storage)| Arc::new(DurableShard::among(index, storage, &common));
        let shards: Box<[_]> = (0..).zip(shards).map(shard).map(RwLock::new).collect();
        let sources = shards.iter().map(|shard| Arc::clone(shard.read().progress()));
        let sources = Sources::new(sources.chain(others));
        Self { shards, common, in_memory: AtomicUsize::new(0), in_memory_max, commits, sources }
    }

    /// Creates the next tenure of a closed shard, over `log`, or over its store alone. It must be [put](Self::put)
    /// in the place of the previous tenure.
    pub(crate) fn successor(
        &self,
        index: ShardIndex,
        log: Option<Box<dyn Changelog>>,
    ) -> Arc<DurableShard> {
        let before = self.get(index);
        let log = log.unwrap_or_else(|| local_log(before.store(), &self.commits));
        Arc::new(before.successor(log))
    }

    /// Puts a tenure in the place of the previous tenure of its shard.
    pub(crate) fn put(&self, shard: Arc<DurableShard>) {
        let index = usize::from(shard.index());
        *self.shards[index].write() = shard;
    }

    /// Takes snapshots of all stores at one moment, between two commits.
    pub fn snapshots(&self) -> Result<Vec<Box<dyn Snapshot>>, StoreError> {
        let _commits = self.commits.write();
        self.iter().map(|shard| shard.store().snapshot()).collect()
    }

    /// Returns the shard that a client's session or a retained topic belongs to. The result must never change,
    /// because it determines where in a data directory something is.
    pub fn of(&self, tenant: &str, entity: &str) -> Arc<DurableShard> {
        self.get(among(self.shards.len(), tenant, entity.as_bytes()))
    }

    /// Returns the shard that the managed objects of a tenant belong to; with an empty name, those of no tenant. The
    /// result must never change, either.
    pub fn of_tenant(&self, tenant: &str) -> Arc<DurableShard> {
        self.of(tenant, "")
    }

    /// Returns the index of the shard that a key of the state store belongs to. The result must never change,
    /// either.
    ///
    /// Keys use only half of the shards. Answers leave in the order of their requests, so a client with requests
    /// about many keys waits for the slowest of the shards that have these keys; and fewer shards have larger
    /// batches.
    pub fn of_key(&self, tenant: &str, key: &[u8]) -> ShardIndex {
        among(self.count_of_keys().into(), tenant, key)
    }

    /// Number of shards that have keys of the state store: the first ones.
    pub fn count_of_keys(&self) -> ShardIndex {
        ShardIndex::try_from(self.shards.len().div_ceil(2)).expect("shards are few")
    }

    /// The progress of all shards.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// Returns the present tenure of a shard.
    pub fn get(&self, index: ShardIndex) -> Arc<DurableShard> {
        Arc::clone(&self.shards[usize::from(index)].read())
    }

    /// Ends a round in all shards, see [`DurableShard::end_round`].
    pub fn end_round(&self) {
        if self.common.take_changed() {
            self.iter().for_each(|shard| shard.end_round());
        }
    }

    /// Iterates over the present tenures of all shards.
    pub fn iter(&self) -> impl Iterator<Item = Arc<DurableShard>> {
        self.shards.iter().map(|shard| Arc::clone(&shard.read()))
    }

    /// Whether too many bytes wait for one of these commits: publishers are faster than the disk, or than another broker.
    pub fn are_congested(&self, commits: &Commits) -> bool {
        let is_congested = |source: ShardIndex| {
            if usize::from(source) < self.count() {
                self.get(source).pending_bytes() > PENDING_MAX
            } else {
                self.sources.get(source).is_congested()
            }
        };
        commits.iter().any(|(source, _)| is_congested(source))
    }

    /// Whether a shard takes nothing new.
    pub fn any_refuses(&self) -> bool {
        self.common.any_refuses()
    }

    /// Tells all shards the name of a tenant. Must be called before anything of the tenant is noted.
    pub fn name_tenant(&self, number: TenantNumber, name: &str) {
        for shard in self.iter() {
            shard.name_tenant(number, name);
        }
    }

    /// Returns the batches that have all changes noted so far, in all shards.
    pub fn last_changes(&self) -> Commits {
        self.iter().map(|shard| (shard.index(), shard.last_change())).collect()
    }

    /// Whether there is room for another stored message in memory.
    pub fn has_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed) < self.in_memory_max
    }

    /// Notes that the size of stored messages in memory has changed from `before` to `after` bytes.
    pub fn count_in_memory(&self, before: usize, after: usize) {
        if after > before {
            self.in_memory.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.in_memory.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// The bytes of stored messages that wait in memory.
    pub fn in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }
}

/// Chooses one of the first `count` shards.
fn among(count: usize, tenant: &str, entity: &[u8]) -> ShardIndex {
    let hash = shard_hash(tenant, entity);
    ShardIndex::try_from(hash % count as u64).expect("less than their number")
}

fn shard_hash(tenant: &str, entity: &[u8]) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
    hash.update(tenant.as_bytes());
    // No tenant's name contains a zero byte, so a pair of tenant and entity is never hashed like another pair.
    hash.update(&[0]);
    hash.update(entity);
    hash.digest()
}
