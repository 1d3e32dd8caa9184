//! The start: from the stores to sessions, subscriptions and retained messages.

use std::sync::Arc;
use std::time::Duration;

use barid_core::durable::recovery::{Recovered as RecoveredShard, RecoveryCause};
use barid_core::durable::{
    self, EntityRecord, Recovery, RecoveryError, SessionRecord, SessionStateRecord,
    SubscriptionRecord, Trace, keys,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, QueueNumber, SessionNumber, TenantNumber};
use barid_core::message::Message;
use barid_core::session::EntryRecord;
use barid_core::state_store::StateRecord;
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashMap;
use statestore_proto::Version;

use crate::agenda::Task;
use crate::bindings;
use crate::durable::{Durable, DurableShard};
use crate::engine::Engine;
use crate::entities::Recovering;
use crate::lifecycle::persists;
use crate::session::{SessionRef, Subscription, Will};
use crate::state_requests::watch_expiries;
use crate::tenant::Tenant;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions.
    pub sessions: usize,
    /// Messages that wait in them or are in flight.
    pub queued: usize,
    /// Retained messages.
    pub retained: usize,
    /// Keys of the state store.
    pub keys: usize,
    /// Queues, topics and subscriptions.
    pub entities: usize,
    /// Messages in them.
    pub messages: usize,
}

/// What the store of one shard has.
pub struct Contents {
    shard: RecoveredShard,
    found: Recovered,
    sessions: HashMap<SessionNumber, SessionRef>,
    void_retained: Vec<(TenantNumber, Box<str>)>,
    entities: Recovering,
}

/// Reads the store of a shard. The shards may be read at the same time.
///
/// # Errors
/// What it has cannot be read.
pub fn read(engine: &Engine, shard: &Arc<DurableShard>) -> Result<Contents, RecoveryError> {
    let mut reader = Reader::new(engine, shard);
    let recovered = durable::recover(shard.index(), &**shard.store(), &mut reader)?;
    reader.end_entries();
    let Reader { found, sessions, void_retained, entities, failed, .. } = reader;
    match failed {
        Some(error) => Err(error),
        None => Ok(Contents { shard: recovered, found, sessions, void_retained, entities }),
    }
}

/// Brings back what all shards have, in the order of their numbers. Comes before anybody connects.
pub fn recover(engine: &Engine, contents: impl IntoIterator<Item = Contents>) -> Recovered {
    let mut total = Recovered::default();
    let mut shards = Vec::new();
    let mut sessions = HashMap::new();
    let mut void_retained = Vec::new();
    let mut entities = Vec::new();
    for contents in contents {
        let Contents {
            shard,
            found,
            sessions: of_shard,
            void_retained: void,
            entities: of_tenants,
        } = contents;
        void_retained.push(void);
        total.sessions += found.sessions;
        total.queued += found.queued;
        total.retained += found.retained;
        total.keys += found.keys;
        total.entities += of_tenants.count();
        total.messages += found.messages;
        shards.push(shard);
        sessions.extend(of_shard);
        entities.push(of_tenants);
    }
    let tenants = engine.tenants.all();
    let by_number: HashMap<_, _> =
        tenants.iter().map(|tenant| (tenant.stored_number(), tenant)).collect();
    let settled = durable::settle(shards, |trace| match trace {
        Trace::Received(received) => {
            if let Some(session) = sessions.get(&received.session) {
                session.state().received.recover(received.packet_id, received.shard);
            }
        }
        Trace::Answered(answered) => {
            by_number[&answered.tenant].state_store().recover_answered(&answered);
        }
    });
    for (shard, settled) in engine.shards.iter().zip(settled) {
        shard.install(settled);
    }
    for tenant in &tenants {
        engine.shards.name_tenant(tenant.stored_number(), &tenant.name);
        watch_expiries(engine, tenant);
    }
    for (shard, void) in engine.shards.iter().zip(void_retained) {
        for (tenant, topic) in void {
            shard.change().remove_retained(tenant, &topic);
        }
    }
    Recovering::join(entities);
    let now = engine.clock.now();
    let mut sessions: Vec<_> = sessions.into_iter().collect();
    sessions.sort_unstable_by_key(|(number, _)| *number);
    for (_, session) in sessions {
        resume(engine, &session, now);
    }
    total
}

/// The clocks of a session go on: its expiry, and the delay of its will. A client that was connected when
/// the broker ended has lost its connection now.
fn resume(engine: &Engine, session: &SessionRef, now: MonoTime) {
    let mut state = session.state();
    let was_away = state.away_since.is_some();
    let away_since = *state.away_since.get_or_insert(now);
    if !was_away {
        session.store(&state);
    }
    let (weak, epoch) = (session.downgrade(), 0);
    let after = |seconds: u32| away_since.after(Duration::from_secs(u64::from(seconds)));
    if let Some(will) = &state.will {
        let task = Task::PublishWill { session: weak.clone(), epoch };
        engine.agenda.schedule(after(will.delay), task);
    }
    if state.expiry != u32::MAX {
        engine.agenda.schedule(after(state.expiry), Task::Expire { session: weak, epoch });
    }
}

/// Hears what one store has.
struct Reader<'a> {
    engine: &'a Engine,
    shard: &'a Arc<DurableShard>,
    now: MonoTime,
    tenants: HashMap<TenantNumber, Arc<Tenant>>,
    sessions: HashMap<SessionNumber, SessionRef>,
    /// The session whose entries are being read.
    entries: (SessionNumber, Vec<(EntryNumber, EntryRecord)>),
    /// Retained messages that are to go.
    void_retained: Vec<(TenantNumber, Box<str>)>,
    entities: Recovering,
    /// The first entity that cannot be read.
    failed: Option<RecoveryError>,
    found: Recovered,
}

impl<'a> Reader<'a> {
    fn new(engine: &'a Engine, shard: &'a Arc<DurableShard>) -> Self {
        Self {
            engine,
            shard,
            now: engine.clock.now(),
            tenants: HashMap::new(),
            sessions: HashMap::new(),
            entries: (0, Vec::new()),
            void_retained: Vec::new(),
            entities: Recovering::default(),
            failed: None,
            found: Recovered::default(),
        }
    }

    fn end_entries(&mut self) {
        let entries = std::mem::take(&mut self.entries.1);
        if let Some(session) = self.sessions.get(&self.entries.0) {
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
        let session = SessionRef::new(id, Arc::clone(&tenant.account), client_id, durable);
        {
            let mut state = session.state();
            state.user = record.user;
            state.expiry = record.expiry;
            state.away_since = record.away_since;
            state.will = record.will.map(|will| {
                Box::new(Will { message: will.message, expiry: will.expiry, delay: will.delay })
            });
        }
        session.set_survives(true);
        // Its client has asked for it, or the class has changed: then what it has is worth as much.
        session.set_keeps_all(!tenant.durability().stores_sessions());
        session.recover_replays(record.replays);
        tenant.sessions.entry(client_id).insert(session.clone());
        self.sessions.insert(number, session);
        self.found.sessions += 1;
    }

    fn subscription(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    ) {
        let session = &self.sessions[&session];
        let subscription = Subscription {
            filter: filter.into(),
            qos: record.qos,
            no_local: record.no_local,
            retain_as_published: record.retain_as_published,
            identifier: record.identifier,
        };
        self.tenants[&tenant].subscribe(session, &subscription);
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

    fn retained(&mut self, tenant: TenantNumber, message: Message) {
        let own = &self.tenants[&tenant];
        let topic = message.publication().topic;
        // The class of the topic may have changed: then what is stored has been overtaken, perhaps.
        let is_current = own.durability().of(topic).is_stored() || persists(&message);
        if message.is_expired(self.now) || !is_current {
            self.void_retained.push((tenant, topic.into()));
            return;
        }
        let message = Arc::new(message);
        own.retained.write().set(&message);
        self.found.retained += 1;
    }

    fn state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        self.tenants[&tenant].state_store().recover_clock(latest);
    }

    fn state(&mut self, tenant: TenantNumber, key: &[u8], record: StateRecord) {
        self.tenants[&tenant].state_store().recover(self.shard.index(), key, record);
        self.found.keys += 1;
    }

    fn entity(&mut self, tenant: TenantNumber, path: &str, record: EntityRecord) {
        let tenant = &self.tenants[&tenant];
        let recovered = match path.strip_prefix(bindings::STORED_UNDER) {
            Some(name) => tenant.bindings.recover(name, &record),
            None => {
                let entities = tenant.entities(&self.engine.alarm);
                self.entities.entity(entities, path, record)
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
}
