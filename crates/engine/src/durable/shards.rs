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
use crate::progress::Sources;

/// Bytes that may wait for the next commit of a shard before publishers are not read from any more.
const PENDING_MAX: usize = 64 * 1024 * 1024;

/// Where what is durable goes: the log of each shard, in the order of their numbers, and the store that has what the log
/// has.
pub struct Storage {
    /// At least one.
    pub shards: Vec<(Box<dyn Changelog>, Arc<dyn Store>)>,
    /// Held by the logs while they commit.
    pub commits: Arc<RwLock<()>>,
}

impl Storage {
    /// Stores that have no log but themselves.
    pub fn local(stores: &[Arc<dyn Store>]) -> Self {
        let commits = Arc::default();
        let shard = |store: &Arc<dyn Store>| (local_log(store, &commits), Arc::clone(store));
        Self { shards: stores.iter().map(shard).collect(), commits }
    }
}

fn local_log(store: &Arc<dyn Store>, commits: &Arc<RwLock<()>>) -> Box<dyn Changelog> {
    Box::new(LocalLog::new(Arc::clone(store), Arc::clone(commits)))
}

/// The shards, and what they have in common.
#[derive(Debug)]
pub struct Shards {
    /// The present tenure of each.
    shards: Box<[RwLock<Arc<DurableShard>>]>,
    common: Arc<Common>,
    /// Bytes of stored messages that wait in memory as well.
    in_memory: AtomicUsize,
    /// The most of them; beyond, messages wait in the store only.
    in_memory_max: usize,
    /// Held by the logs while they commit.
    commits: Arc<RwLock<()>>,
    sources: Sources,
}

impl Shards {
    /// All shards. So many bytes of stored messages may wait in memory as well.
    pub fn new(storage: Storage, in_memory_max: usize) -> Self {
        let Storage { shards, commits } = storage;
        assert!(!shards.is_empty(), "a broker has a shard");
        let common = Arc::<Common>::default();
        let shard = |(index, storage)| Arc::new(DurableShard::among(index, storage, &common));
        let shards: Box<[_]> = (0..).zip(shards).map(shard).map(RwLock::new).collect();
        let sources = shards.iter().map(|shard| Arc::clone(shard.read().progress()));
        let sources = Sources::new(sources);
        Self { shards, common, in_memory: AtomicUsize::new(0), in_memory_max, commits, sources }
    }

    /// The next tenure of a closed shard, over a log of its own, or over its store alone. It is to be [put](Self::put) in the
    /// place of the one before.
    pub(crate) fn successor(
        &self,
        index: ShardIndex,
        log: Option<Box<dyn Changelog>>,
    ) -> Arc<DurableShard> {
        let before = self.get(index);
        let log = log.unwrap_or_else(|| local_log(before.store(), &self.commits));
        Arc::new(before.successor(log))
    }

    /// From now on this one is the shard of its number.
    pub(crate) fn put(&self, shard: Arc<DurableShard>) {
        let index = usize::from(shard.index());
        *self.shards[index].write() = shard;
    }

    /// All stores as they are at one moment, between two commits.
    pub fn snapshots(&self) -> Result<Vec<Box<dyn Snapshot>>, StoreError> {
        let _commits = self.commits.write();
        self.iter().map(|shard| shard.store().snapshot()).collect()
    }

    /// The shard that a client's session or a retained topic belongs to. Must never change: it says where in
    /// a data directory something is.
    pub fn of(&self, tenant: &str, entity: &str) -> Arc<DurableShard> {
        self.get(among(self.shards.len(), tenant, entity.as_bytes()))
    }

    /// The number of the shard that a key of the state store belongs to. Must never change, either.
    ///
    /// Keys share half of the shards. Answers leave in the order of their requests, so a client with requests
    /// about many keys waits for the slowest of all shards that have one; fewer shards have larger batches.
    pub fn of_key(&self, tenant: &str, key: &[u8]) -> ShardIndex {
        among(self.shards.len().div_ceil(2), tenant, key)
    }

    /// How far they have got.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// One of them, in its present tenure.
    pub fn get(&self, index: ShardIndex) -> Arc<DurableShard> {
        Arc::clone(&self.shards[usize::from(index)].read())
    }

    /// See [`DurableShard::end_round`].
    pub fn end_round(&self) {
        if self.common.take_changed() {
            self.iter().for_each(|shard| shard.end_round());
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Arc<DurableShard>> {
        self.shards.iter().map(|shard| Arc::clone(&shard.read()))
    }

    /// Whether more waits for one of these commits than should: publishers are faster than the disk.
    pub fn are_congested(&self, commits: &Commits) -> bool {
        commits.iter().any(|(shard, _)| self.get(shard).pending_bytes() > PENDING_MAX)
    }

    /// Whether any takes nothing new.
    pub fn any_refuses(&self) -> bool {
        self.common.any_refuses()
    }

    /// Says what a tenant is called, before anything of it is stored.
    pub fn name_tenant(&self, number: TenantNumber, name: &str) {
        for shard in self.iter() {
            shard.name_tenant(number, name);
        }
    }

    /// All that has been noted so far, in all shards.
    pub fn last_changes(&self) -> Commits {
        self.iter().map(|shard| (shard.index(), shard.last_change())).collect()
    }

    /// Whether a message that is stored should wait in memory, too.
    pub fn has_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed) < self.in_memory_max
    }

    /// Notes that the messages that wait in memory have changed from so many bytes to so many.
    pub fn count_in_memory(&self, before: usize, after: usize) {
        if after > before {
            self.in_memory.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.in_memory.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Bytes of messages that wait in memory.
    pub fn in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }
}

/// One of the first `count`.
fn among(count: usize, tenant: &str, entity: &[u8]) -> ShardIndex {
    let hash = shard_hash(tenant, entity);
    ShardIndex::try_from(hash % count as u64).expect("less than their number")
}

fn shard_hash(tenant: &str, entity: &[u8]) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
    hash.update(tenant.as_bytes());
    // No tenant's name has it, so nothing of one tenant looks like something of another.
    hash.update(&[0]);
    hash.update(entity);
    hash.digest()
}
