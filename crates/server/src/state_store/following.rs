//! What follows from a change of a key: what is stored, and who is told.

use std::sync::{Arc, Weak};

use barid_core::ids::{PacketId, SessionNumber, TenantNumber};
use barid_core::message::Publication;
use barid_core::state_store::{AnsweredRecord, Effects, StateRecord, Watcher};
use mqtt_proto::{PropertiesBuf, Property, QoS};
use statestore_proto::{Notification, Version, properties, topics};

use super::stamp::Stamp;
use crate::durability::DurabilityClass;
use crate::durable::{ChangeGuard, Commits, DurableShard};
use crate::ids::ConnectionId;
use crate::lifecycle::Context;
use crate::run::Run;
use crate::session::{Session, SessionRef};

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

/// A change that somebody is to be told of.
struct Notice {
    watchers: Vec<Watching>,
    key: Box<[u8]>,
    payload: Vec<u8>,
    version: Version,
    after: Option<u64>,
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

    /// Tells the watchers, in the order of the changes; so while the keys are still locked. What they are
    /// told leaves when it is durable. Answers how often somebody was told something.
    pub fn tell(mut self, context: &mut Context) -> usize {
        // Their sessions may be of the same shard.
        self.guard = None;
        if self.notices.is_empty() {
            return 0;
        }
        let mut told = 0;
        for notice in self.notices {
            // Also if that is durable by now: what was told before may still wait, and comes first.
            let after = notice.after.map(|batch| Commits::one(self.shard.index(), batch));
            let after = after.unwrap_or_default();
            for watcher in &notice.watchers {
                if let Some(session) = SessionRef::upgrade(&watcher.session)
                    && session.is_owned_by(watcher.connection)
                {
                    notice.tell(context, &session, after.clone());
                    told += 1;
                }
            }
        }
        // Nobody is held back because a watcher is slow.
        context.router.take_full();
        told
    }
}

impl Notice {
    fn tell(&self, context: &mut Context, session: &SessionRef, after: Commits) {
        let topic = topics::notify_topic(&session.client_id, &self.key);
        let mut given = PropertiesBuf::default();
        let stamp = Stamp::of(self.version);
        given
            .push(Property::UserProperty(properties::TIMESTAMP, stamp.as_str()))
            .expect("the text of a version is short");
        let publication = Publication {
            topic: &topic,
            payload: &self.payload,
            properties: given.as_properties().as_bytes(),
            qos: QoS::AtLeastOnce,
            retain: false,
            expires_at: None,
        };
        let Context { worker, router, .. } = context;
        // It is told to a connection, so it need not outlive one.
        let (mut run, mut buffer) = Run::of(&publication, DurabilityClass::Memory, worker.now);
        run.after = after;
        router.notify(worker, session, &mut run.in_buffer(&mut buffer, worker.now));
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
        shard.put_state_clock(tenant, version);
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
        shard.put_answered(tenant, session, packet_id, record);
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
