//! A store that hides records when the rule that a start restores them is broken.

use std::ops::ControlFlow;

use barid_core::durable::keys;
use barid_core::session::{EntryRecord, Phase};
use barid_core::state_store::StateRecord;
use barid_store::memory::MemoryStore;
use barid_store::{Batch, Keyspace, Snapshot, Store, StoreError, Visit};
use mqtt_proto::QoS;

use crate::rules::{Rule, Rules};

/// The store of one shard. Reads do not see what the broken rule hides.
pub struct Forgetful {
    store: MemoryStore,
    shard: u16,
    rules: Rules,
}

impl Forgetful {
    /// Wraps the store of a shard, and hides the records that the broken rule names.
    pub fn new(store: MemoryStore, shard: u16, rules: Rules) -> Self {
        Self { store, shard, rules }
    }

    /// Returns the value as a read finds it, or `None` if the record is hidden.
    fn found(&self, keyspace: Keyspace, value: &[u8]) -> Option<Vec<u8>> {
        let breaks = |rule| !self.rules.hold(rule);
        match keyspace {
            keys::STATE_ANSWERS if breaks(Rule::RestoreAnswers) => None,
            keys::STATE_CLOCKS if breaks(Rule::RestoreClock) => None,
            keys::QUEUE_NUMBERS if breaks(Rule::RestoreNumbers) => None,
            keys::QUEUE_SEEN if breaks(Rule::RestoreSeen) => None,
            keys::QUEUE_SESSIONS if breaks(Rule::RestoreStates) => None,
            keys::STATE_CLOCKS if breaks(Rule::RestoreClockFromAllShards) && self.shard > 0 => None,
            keys::STATE => {
                let mut record = StateRecord::decode(value).expect("it is as it was written");
                record.fencing_token =
                    record.fencing_token.filter(|_| !breaks(Rule::RestoreFencingTokens));
                record.expires_at = record.expires_at.filter(|_| !breaks(Rule::RestoreExpiries));
                let mut value = Vec::new();
                record.encode(&mut value);
                Some(value)
            }
            keys::ENTRIES if breaks(Rule::KeepUntilAcknowledged) => {
                let record = EntryRecord::decode(value).expect("it is as it was written");
                let is_sent = matches!(record.phase, Phase::Sent(_));
                (!is_sent || record.qos != QoS::AtLeastOnce).then(|| value.to_vec())
            }
            _ => Some(value.to_vec()),
        }
    }
}

impl Store for Forgetful {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.store.get(keyspace, key)?;
        Ok(value.and_then(|value| self.found(keyspace, &value)))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.store.scan(keyspace, prefix, from, &mut |key, value| match self.found(keyspace, value)
        {
            Some(value) => visit(key, &value),
            None => ControlFlow::Continue(()),
        })
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.commit(batch)
    }

    fn room(&self) -> Result<(), StoreError> {
        self.store.room()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.store.snapshot()
    }

    fn disk_bytes(&self) -> u64 {
        self.store.disk_bytes()
    }
}
