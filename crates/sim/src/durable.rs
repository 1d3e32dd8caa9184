//! The shards of the data directory, and their committers.

use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::durable::keys::{self, QueueBodyKey};
use barid_core::durable::{Shard, WriteSet, records};
use barid_core::ids::{QueueNumber, TenantNumber};
use barid_store::memory::MemoryStore;
use barid_store::{Batch, Store};

use crate::history::{Event, History};
use crate::rules::{IfHolds as _, Rule, Rules};

/// The name of the one tenant.
pub const TENANT: &str = "t";
/// Its number.
pub const TENANT_NUMBER: TenantNumber = TenantNumber(0);

/// All shards.
pub struct Durable {
    units: Vec<Unit>,
    rules: Rules,
}

struct Unit {
    shard: Shard,
    store: MemoryStore,
    commit: Commit,
    /// The last batch that is known to be durable.
    durable: u64,
    /// Something may have been noted since the last batch was taken.
    touched: bool,
}

/// How far a committer has got.
enum Commit {
    Idle,
    Taken(u64, WriteSet),
    Written(u64, WriteSet, bool),
}

impl Durable {
    /// Shards as they were recovered, with their stores.
    pub fn new(shards: Vec<(Shard, MemoryStore)>, rules: Rules) -> Self {
        let unit = |(mut shard, store): (Shard, MemoryStore)| {
            shard.name_tenant(TENANT_NUMBER, TENANT);
            Unit {
                touched: !shard.pending().is_empty(),
                shard,
                store,
                commit: Commit::Idle,
                durable: 0,
            }
        };
        Self { units: shards.into_iter().map(unit).collect(), rules }
    }

    /// The shard of a client's session, or of a retained topic, which have numbers here.
    pub fn shard_of(&self, entity: usize) -> u16 {
        u16::try_from(entity % self.units.len()).expect("there are few")
    }

    /// A shard, to note changes in. The second is the batch that has them.
    pub fn change(&mut self, shard: u16) -> (&mut Shard, u64) {
        let unit = &mut self.units[usize::from(shard)];
        unit.touched = true;
        let batch = unit.shard.batch();
        (&mut unit.shard, batch)
    }

    /// A shard, to look at.
    pub fn shard(&self, shard: u16) -> &Shard {
        &self.units[usize::from(shard)].shard
    }

    /// Whether all that is awaited is durable.
    pub fn has(&self, awaited: &Commits) -> bool {
        awaited.iter().all(|(shard, batch)| self.units[usize::from(shard)].durable >= batch)
    }

    /// The bytes of a message in an entity, wherever they are.
    pub fn queue_body(&self, shard: u16, queue: QueueNumber, id: u64) -> Option<Arc<[u8]>> {
        let unit = &self.units[usize::from(shard)];
        let of = |writes: &WriteSet| writes.queue_body(TENANT_NUMBER, queue, id).map(Arc::clone);
        unit.noted(of)
            .if_holds(self.rules, Rule::FindWhatIsBeingWritten)
            .or_else(|| unit.stored_body(queue, id))
    }

    /// Whether all shards have written all that was noted.
    pub fn is_written(&self) -> bool {
        self.units.iter().all(|unit| matches!(unit.commit, Commit::Idle) && !unit.touched)
    }

    /// The committer of a shard goes one step on. True: another batch is durable.
    pub fn advance(&mut self, index: u16, history: &mut History) -> bool {
        let rules = self.rules;
        let unit = &mut self.units[usize::from(index)];
        match std::mem::replace(&mut unit.commit, Commit::Idle) {
            Commit::Idle => {
                if unit.touched {
                    unit.touched = false;
                    let (number, writes) = unit.shard.take();
                    history.note(Event::Taken(index, number, writes.len()));
                    unit.commit = Commit::Taken(number, writes);
                }
                false
            }
            Commit::Taken(number, writes) => {
                let mut batch = Batch::new();
                writes.encode(&unit.shard.tenant_names(), &mut batch);
                // The reserve is for what is here already; a full disk takes nothing new.
                batch.set_urgent();
                history.write(&batch);
                let works = unit.store.commit(&batch).is_ok();
                history.note(Event::Written(index, number, works));
                unit.commit = Commit::Written(number, writes, works);
                false
            }
            Commit::Written(number, writes, works) => {
                history.note(Event::Told(index, number, works));
                if !works && rules.hold(Rule::AppendAgainWhatFailed) {
                    unit.commit = Commit::Taken(number, writes);
                } else if !works {
                    unit.touched = true;
                }
                let durable = works || !rules.hold(Rule::FailedIsNotDurable);
                if durable {
                    unit.durable = number;
                }
                durable
            }
        }
    }
}

impl Unit {
    /// What is still to be written, or is being written.
    fn noted<T>(&self, find: impl Fn(&WriteSet) -> Option<T>) -> Option<T> {
        find(self.shard.pending()).or_else(|| match &self.commit {
            Commit::Idle => None,
            Commit::Taken(_, writes) | Commit::Written(_, writes, _) => find(writes),
        })
    }

    fn stored_body(&self, queue: QueueNumber, id: u64) -> Option<Arc<[u8]>> {
        let mut key = Vec::new();
        QueueBodyKey { tenant: TENANT, queue, id }.encode(&mut key);
        let value =
            self.store.get(keys::QUEUE_BODIES, &key).expect("reading does not fail here")?;
        Some(records::decode_body(&value).expect("it is as it was written").into())
    }
}
