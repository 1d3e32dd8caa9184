//! The start: from the stores to sessions, subscriptions and retained messages.

use std::sync::Arc;
use std::time::Duration;

use barid_core::durable::recovery::{Recovered as RecoveredShard, RecoveryCause};
use barid_core::durable::{
    self, EntityRecord, Homes, Recovery, RecoveryError, SessionRecord, SessionStateRecord,
    SubscriptionRecord, Trace, keys, shard_of,
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

impl Recovered {
    /// Adds what one shard has, with so many entities.
    fn add(&mut self, found: Self, entities: usize) {
        self.sessions += found.sessions;
        self.queued += found.queued;
        self.retained += found.retained;
        self.keys += found.keys;
        self.entities += entities;
        self.messages += found.messages;
    }
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

/// Brings back what all shards have. Comes before anybody connects, and nobody may before all that is noted here is durable
/// ([`Committing::begin`](crate::durable::Committing::begin)).
pub fn recover(engine: &Engine, contents: impl IntoIterator<Item = Contents>) -> Recovered {
    let mut opening = Opening {
        engine,
        homes: Homes::default(),
        tenants: engine.tenants.all(),
        sessions: HashMap::new(),
        total: Recovered::default(),
    };
    opening.tenants.sort_unstable_by_key(|tenant| tenant.stored_number());
    for contents in contents {
        opening.open(contents);
    }
    for tenant in &opening.tenants {
        watch_expiries(engine, tenant);
    }
    opening.total
}

/// Shards that are opened one after the other.
struct Opening<'a> {
    engine: &'a Engine,
    homes: Homes,
    /// All, by number.
    tenants: Vec<Arc<Tenant>>,
    /// Those of all shards that are open.
    sessions: HashMap<SessionNumber, SessionRef>,
    total: Recovered,
}

impl Opening<'_> {
    /// Opens a shard: what it has is there from now on.
    fn open(&mut self, contents: Contents) {
        let Contents { shard, found, sessions, void_retained, entities } = contents;
        self.total.add(found, entities.count());
        let mut own: Vec<_> = sessions.values().cloned().collect();
        self.sessions.extend(sessions);
        let (mut shard, traces) = self.homes.open(shard);
        shard.begin_tenure();
        let opened = self.engine.shards.get(shard.index());
        opened.install(shard);
        for tenant in &self.tenants {
            opened.name_tenant(tenant.stored_number(), &tenant.name);
        }
        for (trace, lives) in traces {
            self.settle(&trace, lives);
        }
        for (tenant, topic) in void_retained {
            opened.change().remove_retained(tenant, &topic);
        }
        entities.join();
        own.sort_unstable_by_key(|session| session.stored_number());
        let now = self.engine.clock.now();
        own.iter().for_each(|session| resume(self.engine, session, now));
    }

    /// Tells whom a trace is about, or removes it.
    fn settle(&self, trace: &Trace, lives: bool) {
        let shards = &self.engine.shards;
        let (tenant, session) = trace.session();
        shards.get(shard_of(session)).change().skip_number(session);
        match trace {
            _ if !lives => trace.remove(&mut shards.get(trace.shard()).change()),
            Trace::Received(received) => {
                if let Some(session) = self.sessions.get(&session) {
                    session.state().received.recover(received.packet_id, received.shard);
                }
            }
            Trace::Answered(answered) => {
                let by_number = |known: &Arc<Tenant>| known.stored_number();
                if let Ok(at) = self.tenants.binary_search_by_key(&tenant, by_number) {
                    self.tenants[at].state_store().recover_answered(answered);
                }
            }
        }
    }
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
                self.entities.entity(entities, self.shard.index(), path, record)
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
