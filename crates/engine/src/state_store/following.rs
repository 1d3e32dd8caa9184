//! What follows from a change of a key: what is stored, and who is told.

use std::sync::{Arc, Weak};

use barid_core::ids::{PacketId, SessionNumber, TenantNumber};
use barid_core::state_store::{AnsweredRecord, Effects, StateRecord, Watcher};
use statestore_proto::{Notification, Version};

use crate::durable::{ChangeGuard, DurableShard};
use crate::faults::{Rule, holds};
use crate::ids::ConnectionId;
use crate::session::Session;

/// A connection that watches keys.
#[derive(Clone, Debug)]
pub struct Watching {
    /// Its session.
    pub session: Weak<Session>,
    /// Registrations end with the connection, also when its session stays.
    pub connection: ConnectionId,
}

impl Watcher for Watching {
    fn id(&self) -> u64 {
        self.connection.0
    }
}

/// Hears what changes in the keys of one tenant in one shard. Locks the shard at the first change.
pub struct Following<'a> {
    shard: &'a DurableShard,
    tenant: TenantNumber,
    guard: Option<ChangeGuard<'a>>,
    notices: Vec<Notice>,
}

/// What the watchers of the keys of one shard are to be told, in this order.
pub struct Notices {
    /// The shard.
    pub shard: u16,
    /// The changes.
    pub all: Vec<Notice>,
}

/// A change that somebody is to be told of.
pub struct Notice {
    /// Who.
    pub watchers: Vec<Watching>,
    /// The key.
    pub key: Box<[u8]>,
    /// What the notification says.
    pub payload: Vec<u8>,
    /// The version that the change has.
    pub version: Version,
    /// The batch that has to be durable before.
    pub after: Option<u64>,
}

impl<'a> Following<'a> {
    /// For keys of `tenant` in `shard`.
    pub fn new(shard: &'a DurableShard, tenant: TenantNumber) -> Self {
        Self { shard, tenant, guard: None, notices: Vec::new() }
    }

    fn change(&mut self) -> &mut ChangeGuard<'a> {
        let shard = self.shard;
        self.guard.get_or_insert_with(|| shard.change())
    }

    /// What watchers are to be told. Lets the shard go: their sessions may be of the same one.
    pub fn into_notices(self) -> Notices {
        Notices { shard: self.shard.index(), all: self.notices }
    }
}

impl Effects<Watching> for Following<'_> {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        let tenant = self.tenant;
        let shard = self.change();
        shard.put_state(tenant, key, record);
        shard.batch()
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        let tenant = self.tenant;
        let shard = self.change();
        shard.remove_state(tenant, key);
        shard.batch()
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        let tenant = self.tenant;
        let shard = self.change();
        if holds(Rule::NoteVersionWithChange) {
            shard.put_state_clock(tenant, version);
        }
        shard.batch()
    }

    fn put_answered(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) -> u64 {
        let tenant = self.tenant;
        let shard = self.change();
        if holds(Rule::NoteAnswerWithChange) {
            shard.put_answered(tenant, session, packet_id, record);
        }
        shard.batch()
    }

    fn remove_answered(&mut self, session: SessionNumber, packet_id: PacketId) {
        let tenant = self.tenant;
        self.change().remove_answered(tenant, session, packet_id);
    }

    fn notify(
        &mut self,
        watchers: &[Watching],
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
    ) {
        let mut payload = Vec::new();
        notification.encode(&mut payload);
        let watchers = watchers.to_vec();
        self.notices.push(Notice { watchers, key: key.into(), payload, version, after });
    }
}
