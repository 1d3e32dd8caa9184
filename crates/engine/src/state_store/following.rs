//! Consequences of a change of a key: changes of the store, and notifications.

use std::sync::{Arc, Weak};

use barid_core::ids::{PacketId, SessionNumber, TenantNumber};
use barid_core::state_store::{AnsweredRecord, Effects, StateRecord, Watcher};
use statestore_proto::{Notification, Version};

use crate::durable::{ChangeGuard, DurableShard};
use crate::faults::{Rule, holds};
use crate::ids::ConnectionId;
use crate::session::Session;
use crate::state_store::Guest;

/// A connection that watches a key. Its watches end with it, even if its session goes on.
#[derive(Clone, Debug)]
pub enum Watching {
    /// A connection of this broker.
    Here {
        /// The session of the connection.
        session: Weak<Session>,
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection of another broker.
    Elsewhere(Arc<Guest>),
}

impl Watcher for Watching {
    fn id(&self) -> u64 {
        match self {
            Self::Here { connection, .. } => connection.0,
            Self::Elsewhere(guest) => guest.id(),
        }
    }
}

/// Receives the changes of the keys of one tenant in one shard, and notes them in the shard. Locks the shard
/// at the first change.
pub struct Following<'a> {
    shard: &'a DurableShard,
    tenant: TenantNumber,
    guard: Option<ChangeGuard<'a>>,
    notices: Vec<Notice>,
}

/// Notifications to the watchers of the keys of one shard, in the order of the changes.
pub struct Notices {
    /// The shard.
    pub shard: u16,
    /// The changes.
    pub all: Vec<Notice>,
}

/// A notification of one change.
pub struct Notice {
    /// The watchers to notify.
    pub watchers: Vec<Watching>,
    /// The key.
    pub key: Box<[u8]>,
    /// The payload of the notification.
    pub payload: Vec<u8>,
    /// The version of the change.
    pub version: Version,
    /// The batch that must be durable before the notification is sent.
    pub after: Option<u64>,
}

impl<'a> Following<'a> {
    /// Creates the receiver for keys of `tenant` in `shard`.
    pub fn new(shard: &'a DurableShard, tenant: TenantNumber) -> Self {
        Self { shard, tenant, guard: None, notices: Vec::new() }
    }

    fn change(&mut self) -> &mut ChangeGuard<'a> {
        let shard = self.shard;
        self.guard.get_or_insert_with(|| shard.change())
    }

    /// Returns the notifications, and unlocks the shard: the sessions of the watchers may belong to the same
    /// shard.
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
