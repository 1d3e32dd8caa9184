//! Subscriptions that earlier versions stored in another shard than their topic.
//!
//! They are moved into the shards of their topics before the stores are read, because no crash may keep a
//! subscription and lose its topic.

use std::ops::ControlFlow;

use barid_core::durable::keys::{self, EntityKey, ShardKey, encode_queue_prefix};
use barid_core::durable::{EntityRecord, ShardRecord, number_in_shard, shard_of};
use barid_core::ids::{QueueNumber, ShardIndex};
use barid_store::{Batch, Keyspace, Store, StoreError};

use super::path::{key, split_subscription};
use crate::durable::Shards;

/// Keyspaces with the contents of an entity's queue. The definition of the entity is in another one.
const CONTENTS: [Keyspace; 5] = [
    keys::QUEUE_NUMBERS,
    keys::QUEUE_SESSIONS,
    keys::QUEUE_SEEN,
    keys::QUEUE_BODIES,
    keys::QUEUE_ENTRIES,
];

/// Size of a batch of moved records, in bytes. A batch that has reached it is committed, so it may exceed it by one
/// record.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// A subscription to be moved.
struct Misplaced {
    tenant: String,
    queue: QueueNumber,
    /// The shard of its topic.
    home: ShardIndex,
    /// The key of its definition, as it is stored.
    key: Vec<u8>,
    record: Vec<u8>,
}

/// Moves subscriptions into the shards of their topics, and returns how many were moved. Must be called before the
/// stores are read. If the process ends before this is done, the next start continues.
///
/// # Errors
/// [`StoreError`] if a store cannot be read or written.
pub fn place_subscriptions(shards: &Shards) -> Result<usize, StoreError> {
    let mut moved = 0;
    for shard in shards.iter() {
        for subscription in misplaced(shards, shard.index(), &**shard.store())? {
            let home = shards.get(subscription.home);
            let home = &**home.store();
            // The definition is copied last: if it is in the home shard, so is everything else.
            if home.get(keys::ENTITIES, &subscription.key)?.is_none() {
                subscription.copy(&**shard.store(), home)?;
            }
            subscription.remove(shard.index(), &**shard.store())?;
            moved += 1;
        }
    }
    Ok(moved)
}

/// Returns the subscriptions in a shard whose topics belong to another shard.
fn misplaced(
    shards: &Shards,
    index: ShardIndex,
    store: &dyn Store,
) -> Result<Vec<Misplaced>, StoreError> {
    let mut found = Vec::new();
    store.scan(keys::ENTITIES, &[], &[], &mut |stored_key, record| {
        // A record that cannot be decoded is ignored here and reported by the recovery.
        if let (Ok(EntityKey { tenant, path }), Ok(EntityRecord { queue, .. })) =
            (EntityKey::decode(stored_key), EntityRecord::decode(record))
            && let Some((topic, _)) = split_subscription(&key(path))
            // A path that begins with `$` is that of a binding, whose name may be anything.
            && !topic.starts_with('$')
        {
            let home = shards.of(tenant, topic).index();
            if home != index {
                let (key, record) = (stored_key.to_vec(), record.to_vec());
                found.push(Misplaced { tenant: tenant.to_owned(), queue, home, key, record });
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

impl Misplaced {
    fn copy(&self, from: &dyn Store, to: &dyn Store) -> Result<(), StoreError> {
        self.move_contents(from, to, |batch, keyspace, key, value| {
            batch.put(keyspace, key, value)
        })?;
        let mut batch = Batch::new();
        batch.put(keys::ENTITIES, &self.key, &self.record);
        to.commit(&batch)
    }

    /// Removes the subscription from its previous shard. The definition is removed first: the next start removes
    /// the contents of a queue without a definition.
    fn remove(&self, index: ShardIndex, from: &dyn Store) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.remove(keys::ENTITIES, &self.key);
        if shard_of(self.queue) == index {
            self.keep_number(from, &mut batch)?;
        }
        from.commit(&batch)?;
        self.move_contents(from, from, |batch, keyspace, key, _| batch.remove(keyspace, key))
    }

    /// Prevents the shard that assigned the queue number from assigning it again, although no entity in that shard
    /// has it any more.
    fn keep_number(&self, store: &dyn Store, batch: &mut Batch) -> Result<(), StoreError> {
        let mut key = Vec::new();
        ShardKey.encode(&mut key);
        let known = store.get(keys::SHARD, &key)?;
        let known = known.and_then(|record| ShardRecord::decode(&record).ok());
        let ShardRecord { epoch, reserved } = known.unwrap_or_default();
        let reserved = reserved.max(number_in_shard(self.queue) + 1);
        let mut record = Vec::new();
        ShardRecord { epoch, reserved }.encode(&mut record);
        batch.put(keys::SHARD, &key, &record);
        Ok(())
    }

    /// Calls `change` for each record in the subscription's queue, and commits the resulting batches to `to`, which
    /// may be the same store as `from`.
    fn move_contents(
        &self,
        from: &dyn Store,
        to: &dyn Store,
        change: impl Fn(&mut Batch, Keyspace, &[u8], &[u8]),
    ) -> Result<(), StoreError> {
        let mut prefix = Vec::new();
        encode_queue_prefix(&self.tenant, self.queue, &mut prefix);
        for keyspace in CONTENTS {
            let mut next = Some(Vec::new());
            while let Some(begin) = next.take() {
                let mut batch = Batch::new();
                from.scan(keyspace, &prefix, &begin, &mut |key, value| {
                    if batch.bytes() >= BATCH_BYTES {
                        next = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    change(&mut batch, keyspace, key, value);
                    ControlFlow::Continue(())
                })?;
                to.commit(&batch)?;
            }
        }
        Ok(())
    }
}
