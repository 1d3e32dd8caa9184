//! The journal of a session: notes the changes of its deliveries.

use std::sync::Arc;

use barid_core::ids::{PacketId, SessionNumber, StoredAs, TenantNumber};
use barid_core::session::{Delivery, Journal, Phase};

use super::shard::ChangeGuard;
use super::{Commits, DurableShard};
use crate::faults::{Rule, holds};

/// The identity under which a session is stored.
#[derive(Clone, Debug)]
pub struct Durable {
    /// The shard of the session.
    pub shard: Arc<DurableShard>,
    /// The number of the tenant.
    pub tenant: TenantNumber,
    /// The number of the session.
    pub number: SessionNumber,
}

/// Notes the changes of a session's deliveries. Locks the shard at the first change, and unlocks it when dropped;
/// the session's lock is held meanwhile.
pub struct SessionJournal<'a> {
    durable: Option<&'a Durable>,
    guard: Option<ChangeGuard<'a>>,
}

impl<'a> SessionJournal<'a> {
    /// Creates the journal of a session. `None`: the session is not stored, and nothing is noted.
    pub fn new(durable: Option<&'a Durable>) -> Self {
        Self { durable, guard: None }
    }

    /// Locks the shard, and returns it with the session's identity. Returns `None` if the session is not stored.
    pub fn open(&mut self) -> Option<(&'a Durable, &mut ChangeGuard<'a>)> {
        let durable = self.durable?;
        let guard = self.guard.get_or_insert_with(|| durable.shard.change());
        Some((durable, guard))
    }

    /// Unlocks the shard.
    pub fn close(&mut self) {
        self.guard = None;
    }

    /// The index of the session's shard, if the session is stored.
    pub fn shard(&self) -> Option<u16> {
        self.durable.map(|durable| durable.shard.index())
    }

    /// The batch that has the noted changes; empty if nothing was noted.
    pub fn commits(&self) -> Commits {
        self.guard.iter().map(|guard| (guard.index(), guard.batch())).collect()
    }
}

impl Journal for SessionJournal<'_> {
    fn put(&mut self, delivery: &Delivery, sent: Option<PacketId>) {
        let phase = sent.map_or(Phase::Waiting, Phase::Sent);
        let (Some(stored), Some(record)) = (delivery.stored, delivery.to_record(phase)) else {
            return;
        };
        if let Some((durable, shard)) = self.open() {
            let entry = stored.entry.get();
            shard.put_entry(durable.tenant, durable.number, entry, record, &delivery.message);
        }
    }

    fn sent(&mut self, delivery: &Delivery, id: PacketId) {
        let (Some(stored), Some(record)) = (delivery.stored, delivery.to_record(Phase::Sent(id)))
        else {
            return;
        };
        if let Some((durable, shard)) = self.open() {
            shard.update_entry(durable.tenant, durable.number, stored.entry.get(), record);
        }
    }

    fn released(&mut self, stored: StoredAs, id: PacketId) {
        if let Some((durable, shard)) = self.open() {
            if holds(Rule::KeepReleased) {
                shard.release_entry(durable.tenant, durable.number, stored, id);
            } else {
                shard.remove_entry(durable.tenant, durable.number, stored, false);
            }
        }
    }

    fn removed(&mut self, stored: StoredAs, released: bool) {
        if let Some((durable, shard)) = self.open() {
            shard.remove_entry(durable.tenant, durable.number, stored, released);
        }
    }
}
