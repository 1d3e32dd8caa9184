//! Recovery of what a shard has from its store: sessions, retained messages, keys of the state store,
//! entities, and managed objects.

use std::sync::Arc;

use barid_core::durable::keys::ManagedKey;
use barid_core::durable::recovery::{Recovered, RecoveryCause};
use barid_core::durable::{
    self, EntityRecord, ManagedRecord, Recovery, RecoveryError, RetainedRecord, SessionRecord,
    SessionStateRecord, SubscriptionRecord, keys,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, QueueNumber, SessionNumber, TenantNumber};
use barid_core::session::EntryRecord;
use barid_core::state_store::{Partition, StateRecord};
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashMap;
use statestore_proto::Version;

use crate::bindings;
use crate::durable::{Durable, DurableShard};
use crate::engine::Engine;
use crate::entities::Recovering;
use crate::managed;
use crate::retaining::is_kept;
use crate::session::{SessionRef, Subscription, Will};
use crate::state_store::Watching;
use crate::tenant::Tenant;

/// Numbers of recovered objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions.
    pub sessions: usize,
    /// Messages that wait in sessions or are in flight.
    pub queued: usize,
    /// Retained messages.
    pub retained: usize,
    /// Keys of the state store.
    pub keys: usize,
    /// Queues, topics and subscriptions.
    pub entities: usize,
    /// Messages in entities.
    pub messages: usize,
    /// Managed objects: users, settings of tenants, bans and tokens.
    pub managed: usize,
}

impl Counts {
    /// Adds what was found in one shard, which has `entities` entities.
    pub(crate) fn add(&mut self, found: Self, entities: usize) {
        self.sessions += found.sessions;
        self.queued += found.queued;
        self.retained += found.retained;
        self.keys += found.keys;
        self.entities += entities;
        self.messages += found.messages;
        self.managed += found.managed;
    }
}

/// The contents of one shard's store, for the tenure that begins with them.
pub struct Contents {
    pub(crate) recovered: Recovered,
    pub(crate) found: Found,
}

/// The recovered objects that the rest of the engine refers to.
pub(crate) struct Found {
    /// The tenure of the shard.
    pub(crate) of: Arc<DurableShard>,
    pub(crate) counts: Counts,
    pub(crate) sessions: Vec<(Arc<Tenant>, SessionRef)>,
    pub(crate) retained: Vec<(Arc<Tenant>, RetainedRecord)>,
    pub(crate) void_retained: Vec<(TenantNumber, Box<str>)>,
    pub(crate) keys: Vec<(Arc<Tenant>, Partition<Watching>)>,
    pub(crate) entities: Recovering,
    pub(crate) managed: managed::Found,
}

/// Reads the store of a shard. Several stores may be read at the same time, while other shards are open.
///
/// # Errors
/// [`RecoveryError`]: a record cannot be read, or the store cannot.
pub fn read(engine: &Engine, shard: &Arc<DurableShard>) -> Result<Contents, RecoveryError> {
    let mut reader = Reader::new(engine, shard);
    let recovered = durable::recover(shard.index(), &**shard.store(), &mut reader);
    let failed = reader.failed.take();
    let found = reader.finish();
    match failed.map_or(recovered, Err) {
        Ok(recovered) => Ok(Contents { recovered, found }),
        Err(error) => {
            found.discard();
            Err(error)
        }
    }
}

impl Found {
    /// Discards what was found, so that it no longer counts for its tenants.
    fn discard(self) {
        self.sessions.iter().for_each(|(_, session)| session.leave());
        for (tenant, found) in self.keys {
            tenant.state_store().discard(found);
        }
        self.entities.discard();
    }
}

/// Receives the records of one store, or of a part of it.
pub(crate) struct Reader<'a> {
    engine: &'a Engine,
    shard: &'a Arc<DurableShard>,
    now: MonoTime,
    tenants: HashMap<TenantNumber, Arc<Tenant>>,
    sessions: HashMap<SessionNumber, (Arc<Tenant>, SessionRef)>,
    /// The session whose entries are being read, and the entries read so far.
    entries: (SessionNumber, Vec<(EntryNumber, EntryRecord)>),
    retained: Vec<(Arc<Tenant>, RetainedRecord)>,
    /// Retained messages that are to be removed: they have expired, or may be outdated.
    void_retained: Vec<(TenantNumber, Box<str>)>,
    keys: HashMap<TenantNumber, Partition<Watching>>,
    entities: Recovering,
    managed: managed::Found,
    /// The error of the first entity or binding that cannot be read.
    failed: Option<RecoveryError>,
    found: Counts,
}

impl<'a> Reader<'a> {
    pub fn new(engine: &'a Engine, shard: &'a Arc<DurableShard>) -> Self {
        Self {
            engine,
            shard,
            now: engine.clock.now(),
            tenants: HashMap::new(),
            sessions: HashMap::new(),
            entries: (0, Vec::new()),
            retained: Vec::new(),
            void_retained: Vec::new(),
            keys: HashMap::new(),
            entities: Recovering::default(),
            managed: managed::Found::default(),
            failed: None,
            found: Counts::default(),
        }
    }

    /// Returns what was found.
    pub fn finish(mut self) -> Found {
        self.end_entries();
        let Self { shard, tenants, found: mut counts, retained, void_retained, .. } = self;
        let Self { entities, managed, .. } = self;
        counts.managed = managed.len();
        let mut sessions: Vec<_> = self.sessions.into_values().collect();
        sessions.sort_unstable_by_key(|(_, session)| session.stored_number());
        let keys = self.keys.into_iter();
        let keys = keys.map(|(tenant, found)| (Arc::clone(&tenants[&tenant]), found)).collect();
        let of = Arc::clone(shard);
        Found { of, counts, sessions, retained, void_retained, keys, entities, managed }
    }

    /// Gives the entries that were read to their session.
    fn end_entries(&mut self) {
        let entries = std::mem::take(&mut self.entries.1);
        if let Some((_, session)) = self.sessions.get(&self.entries.0) {
            session.recover(entries);
        }
    }
}

impl Recovery for Reader<'_> {
    fn tenant(&mut self, name: &str) -> TenantNumber {
        let tenant = self.engine.tenants.recover(name);
        let number = tenant.stored_number();
        self.tenants.insert(number, tenant);
        number
    }

    fn session(&mut self, tenant: TenantNumber, client_id: &str, record: SessionRecord) {
        let tenant = Arc::clone(&self.tenants[&tenant]);
        let number = record.number;
        let shard = Arc::clone(self.shard);
        let durable = Some(Durable { shard, tenant: tenant.stored_number(), number });
        let id = self.engine.next_session_id();
        if let Some(answered_as) = record.answered_as {
            tenant.answered_as.put(number, answered_as);
        }
        let session = SessionRef::new(id, Arc::clone(&tenant.account), client_id, durable);
        {
            let mut state = session.state();
            let holder = record.user.map(|user| tenant.quotas.holder(&user));
            session.set_holder(&mut state, holder.as_ref());
            state.expiry = record.expiry;
            state.away_since = record.away_since;
            state.will = record.will.map(|will| {
                Box::new(Will { message: will.message, expiry: will.expiry, delay: will.delay })
            });
        }
        session.set_survives(true);
        // If the class of the tenant does not store sessions, the client has asked for it, or the class has
        // changed since. The messages of the session are then stored whatever their class.
        session.set_keeps_all(!tenant.durability().stores_sessions());
        session.recover_replays(record.replays);
        self.sessions.insert(number, (tenant, session));
        self.found.sessions += 1;
    }

    fn subscription(
        &mut self,
        _: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    ) {
        let (_, session) = &self.sessions[&session];
        let subscription = Subscription {
            filter: filter.into(),
            qos: record.qos,
            no_local: record.no_local,
            retain_as_published: record.retain_as_published,
            identifier: record.identifier,
        };
        session.state().subscriptions.insert(subscription);
    }

    fn entry(
        &mut self,
        _: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
    ) {
        if self.entries.0 != session {
            self.end_entries();
            self.entries.0 = session;
        }
        self.entries.1.push((entry, record));
        self.found.queued += 1;
    }

    fn retained(&mut self, tenant: TenantNumber, record: RetainedRecord) {
        let is_tombstone = record.is_tombstone();
        let RetainedRecord { message, holder, stamp } = record;
        let own = &self.tenants[&tenant];
        let topic = message.publication().topic;
        // If the class of the topic has changed, the stored message may be outdated.
        let is_current = is_kept(own.durability().of(topic), &message);
        // Without a cluster, no other broker has replicas that a tombstone must keep out.
        let is_void = is_tombstone && self.engine.cluster.is_none();
        if message.is_expired(self.now) || !is_current || is_void {
            self.void_retained.push((tenant, topic.into()));
            return;
        }
        let holder = holder.map(|holder| own.quotas.holder(holder.name()));
        self.engine.replicated.see(stamp);
        self.retained.push((Arc::clone(own), RetainedRecord { message, holder, stamp }));
        self.found.retained += usize::from(!is_tombstone);
    }

    fn state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        self.tenants[&tenant].state_store().recover_clock(latest);
    }

    fn state(&mut self, tenant: TenantNumber, key: &[u8], mut record: StateRecord) {
        let found = self.keys.entry(tenant).or_default();
        let tenant = &self.tenants[&tenant];
        record.holder = record.holder.map(|holder| tenant.quotas.holder(holder.name()));
        tenant.state_store().recover(found, key, record);
        self.found.keys += 1;
    }

    fn entity(&mut self, tenant: TenantNumber, path: &str, record: EntityRecord) {
        let tenant = &self.tenants[&tenant];
        let recovered = match path.strip_prefix(bindings::STORED_UNDER) {
            Some(name) => tenant.bindings.recover(name, &record),
            None => {
                let entities = tenant.entities(&self.engine.alarm);
                self.entities.entity(entities, self.shard, path, record)
            }
        };
        if let Err(cause) = recovered {
            self.failed.get_or_insert_with(|| RecoveryError {
                tenant: Some(tenant.name.clone()),
                keyspace: keys::ENTITIES,
                cause: RecoveryCause::Record(cause),
            });
        }
    }

    fn queue_numbers(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        part: Part,
        reserved: SequenceNumber,
    ) {
        self.entities.restore(queue, |entity| entity.recover_numbers(part, reserved));
    }

    fn queue_state(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        session: Arc<str>,
        record: SessionStateRecord,
    ) {
        let SessionStateRecord { state, updated_at } = record;
        self.engine.shards.count_in_memory(0, state.len());
        self.entities.restore(queue, |entity| entity.recover_state(&session, state, updated_at));
    }

    fn queue_entry(&mut self, _: TenantNumber, queue: QueueNumber, part: Part, entry: Entry) {
        self.entities.restore(queue, |entity| entity.recover_entry(part, entry));
        self.found.messages += 1;
    }

    fn queue_seen(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        message_id: Arc<str>,
        until: WallTime,
    ) {
        self.entities.restore(queue, |entity| entity.recover_seen(&message_id, until));
    }

    fn managed(&mut self, key: ManagedKey<'_>, record: ManagedRecord) {
        self.managed.add(key, record);
    }
}
