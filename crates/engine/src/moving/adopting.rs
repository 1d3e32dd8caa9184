//! The contents of a slot come into the store and into memory.

use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::durable::keys::{
    self, AnsweredKey, EntityKey, EntryKey, MessageKey, QueueBodyKey, QueueEntryKey,
    QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey, SessionKey, StateClockKey,
    StateKey, SubscriptionKey,
};
use barid_core::durable::records::{
    self, RecordError, decode_body, decode_message, decode_numbers, decode_queue_entry,
    decode_seen, decode_state_clock,
};
use barid_core::durable::{
    AnsweredIn, EntityRecord, ReceivedRecord, Recovery, SessionRecord, SessionStateRecord,
    SubscriptionRecord,
};
use barid_core::ids::{MessageId, QueueNumber, SessionNumber, ShardIndex, TenantNumber};
use barid_core::message::Message;
use barid_core::session::{EntryRecord, Phase};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_peers::ToldKind;
use hashbrown::{HashMap, HashSet};
use thiserror::Error;

use super::leaving::Leaving;
use super::records::{Damaged, Record, Records};
use super::watches::{WATCHES, Watch};
use crate::bindings;
use crate::cluster::Slots;
use crate::durable::DurableShard;
use crate::engine::Engine;
use crate::entities::shard_of_path;
use crate::ids::ConnectionId;
use crate::opening::begin_adopted;
use crate::recovery::Reader;
use crate::state_store::{Guest, Watching, guest_number};
use crate::tenant::Tenant;

/// Why the contents of a slot are not taken over.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AdoptError {
    /// A record cannot be read.
    #[error("a record of the slot cannot be read: {0}")]
    Record(#[from] RecordError),
    /// The records are cut off.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// What becomes of watches that come with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// They go on. Every broker holds since they were read, so no change was missed.
    Adopt,
    /// The clients are disconnected, those that are still there.
    End,
}

/// Takes over the contents of a slot from the broker of the name `from`: into the stores, and into memory. `me` is the
/// name of this broker. Nothing of the slot may be here. Returns the number of sessions.
///
/// The contents are in force at once, and safe when all that is noted now is durable. `watches`: what becomes of watches.
///
/// # Errors
/// A record cannot be read. Nothing was taken over.
pub fn adopt(
    engine: &Engine,
    records: &Records,
    (from, me): (&str, &str),
    watches: Watches,
) -> Result<usize, AdoptError> {
    adopt_as(engine, records, Some(Moved { from, me, watches }))
}

/// Takes the contents of a slot that [have left](Leaving::leave) this broker back into memory, because they stay. Sessions
/// that are not stored have ended.
///
/// # Errors
/// A record cannot be read. Nothing was taken back.
pub fn stay(engine: &Engine, leaving: &Leaving, records: &Records) -> Result<usize, AdoptError> {
    let back = adopt_as(engine, records, None);
    leaving.forget_sessions(|session| session.durable().is_none());
    back
}

fn adopt_as(
    engine: &Engine,
    records: &Records,
    moved: Option<Moved<'_>>,
) -> Result<usize, AdoptError> {
    records.for_each::<AdoptError>(|record| {
        match record.keyspace {
            WATCHES => _ = Watch::decode(record.value)?,
            keyspace => records::verify(keyspace, record.key, record.value)?,
        }
        Ok(())
    })?;
    let shards: Vec<_> = engine.shards.iter().collect();
    let mut adopting = Adopting {
        engine,
        moved,
        readers: shards.iter().map(|shard| Reader::new(engine, shard)).collect(),
        shards: &shards,
        sessions: HashMap::new(),
        messages: HashMap::new(),
        message_ids: HashMap::new(),
        queues: HashMap::new(),
        own_guests: HashMap::new(),
        received: Vec::new(),
        answered: Vec::new(),
        has_received: HashSet::new(),
    };
    records.for_each(|record| adopting.take(record))?;
    Ok(adopting.finish())
}

/// A move of a slot from the broker of the name `from` to this one, `me`.
#[derive(Clone, Copy)]
struct Moved<'a> {
    from: &'a str,
    me: &'a str,
    watches: Watches,
}

/// The contents of a slot, on their way into this broker.
struct Adopting<'a> {
    engine: &'a Engine,
    /// Where the contents are from; `None`: they were here, and their watches have not left.
    moved: Option<Moved<'a>>,
    shards: &'a [Arc<DurableShard>],
    /// Collect the sessions, keys and entities, one reader for each shard of this broker.
    readers: Vec<Reader<'a>>,
    /// The new number and the shard of each session, by the number that it had.
    sessions: HashMap<SessionNumber, (SessionNumber, ShardIndex)>,
    /// The messages of sessions, by the shard and the number that they had.
    messages: HashMap<(ShardIndex, MessageId), Arc<Message>>,
    /// The new numbers of messages, by shard, old number and new shard.
    message_ids: HashMap<(ShardIndex, MessageId, ShardIndex), MessageId>,
    /// The new number and the shard of each queue, by the number that it had.
    queues: HashMap<QueueNumber, (QueueNumber, ShardIndex)>,
    /// The sessions of this broker that the other one has known as guests, by tenant.
    own_guests: HashMap<TenantNumber, HashMap<SessionNumber, SessionNumber>>,
    /// QoS 2 messages that sessions have sent, each with the new number of its session.
    received: Vec<(TenantNumber, SessionNumber, u16)>,
    answered: Vec<AnsweredIn>,
    /// The packet identifiers in `received`, for lookup.
    has_received: HashSet<(SessionNumber, u16)>,
}

impl Adopting<'_> {
    fn take(&mut self, record: Record<'_>) -> Result<(), AdoptError> {
        let Record { shard, keyspace, key, value } = record;
        match keyspace {
            keys::SESSIONS => {
                let SessionKey { tenant, client_id } = SessionKey::decode(key)?;
                self.session(shard, (tenant, client_id), SessionRecord::decode(value)?);
            }
            keys::SUBSCRIPTIONS => {
                let SubscriptionKey { tenant, session, filter } = SubscriptionKey::decode(key)?;
                let record = SubscriptionRecord::decode(value)?;
                if let Some((session, shard)) = self.sessions.get(&session).copied() {
                    let tenant = self.tenant(shard, tenant);
                    if self.is_new() {
                        self.at(shard).change().put_subscription(tenant, session, filter, record);
                    }
                    self.reader(shard).subscription(tenant, session, filter, record);
                }
            }
            keys::MESSAGES if self.is_new() => {
                let MessageKey { message, .. } = MessageKey::decode(key)?;
                self.messages.insert((shard, message), Arc::new(decode_message(value)?));
            }
            keys::ENTRIES => {
                let EntryKey { tenant, session, entry } = EntryKey::decode(key)?;
                self.entry(shard, (tenant, session, entry), EntryRecord::decode(value)?);
            }
            keys::RECEIVED => {
                let ReceivedKey { tenant, session, packet_id } = ReceivedKey::decode(key)?;
                let has_all = ReceivedRecord::decode(value)? == ReceivedRecord::All;
                if let Some((session, shard)) = self.sessions.get(&session).copied() {
                    // If it is not known that all recipients have it, it is handed on when the client sends it again.
                    let is_first = has_all && self.has_received.insert((session, packet_id));
                    if is_first {
                        let tenant = self.tenant(shard, tenant);
                        self.received.push((tenant, session, packet_id));
                    }
                }
            }
            keys::STATE_CLOCKS => {
                let StateClockKey { tenant } = StateClockKey::decode(key)?;
                let latest = decode_state_clock(value)?;
                for shard in 0..self.readers.len() {
                    let shard = ShardIndex::try_from(shard).expect("shards are few");
                    let tenant = self.tenant(shard, tenant);
                    if self.is_new() {
                        self.at(shard).change().put_state_clock(tenant, latest);
                    }
                    self.reader(shard).state_clock(tenant, latest);
                }
            }
            keys::STATE => {
                let StateKey { tenant, key } = StateKey::decode(key)?;
                let record = StateRecord::decode(value)?;
                let of_key = self.engine.shards.of_key(tenant, key);
                let shard = if self.is_new() { of_key } else { shard };
                let tenant = self.tenant(shard, tenant);
                if self.is_new() {
                    self.at(shard).change().put_state(tenant, &Arc::from(key), record.clone());
                }
                self.reader(shard).state(tenant, key, record);
            }
            keys::STATE_ANSWERS => {
                let AnsweredKey { tenant, session, packet_id } = AnsweredKey::decode(key)?;
                self.answer(shard, (tenant, session, packet_id), AnsweredRecord::decode(value)?);
            }
            keys::ENTITIES => {
                let EntityKey { tenant, path } = EntityKey::decode(key)?;
                self.entity(shard, (tenant, path), EntityRecord::decode(value)?);
            }
            WATCHES => self.watch(&Watch::decode(value)?),
            _ => self.in_queue(record)?,
        }
        Ok(())
    }

    /// Takes a watch, before anything can be told of its key here.
    fn watch(&self, watch: &Watch<'_>) {
        let (Some(moved), Some(cluster)) = (self.moved, &self.engine.cluster) else { return };
        let Watch { broker, client_id, connection, session, is_stored, key, .. } = *watch;
        let tenant = self.engine.tenants.recover(watch.tenant);
        let store = tenant.state_store();
        let goes_on = moved.watches == Watches::Adopt;
        if broker == moved.me {
            let connection = ConnectionId(connection);
            let watch = |session| {
                store.adopt_watch(&tenant, Watching::Here { session, connection }, key);
            };
            let unwatch = || store.forget_watcher(&tenant, connection.0, [key].into_iter());
            match goes_on {
                true => tenant.inquirers.adopt((connection, client_id), key, watch, unwatch),
                false => tenant.inquirers.disconnect_one(connection, client_id),
            }
        } else if let Some(member) = cluster.place(broker) {
            let session = guest_number(broker, session);
            let client_id = client_id.into();
            let guest = Arc::new(Guest { member, connection, client_id, session, is_stored });
            if !goes_on {
                return tell(self.engine, &tenant, &guest, ToldKind::Busy);
            }
            store.adopt_guest(&tenant, &guest, key);
            if cluster.is_out(member) {
                store.forget_guests(&tenant, member);
            }
        }
    }

    /// Takes a record of what is in a queue.
    fn in_queue(&mut self, record: Record<'_>) -> Result<(), AdoptError> {
        let Record { keyspace, key, value, .. } = record;
        match keyspace {
            keys::QUEUE_NUMBERS => {
                let QueueNumbersKey { tenant, queue, part } = QueueNumbersKey::decode(key)?;
                let reserved = decode_numbers(value)?;
                self.with_queue(tenant, queue, |shard, reader, (tenant, queue)| {
                    if let Some(shard) = shard {
                        shard.change().put_queue_numbers(tenant, queue, part, reserved);
                    }
                    reader.queue_numbers(tenant, queue, part, reserved);
                });
            }
            keys::QUEUE_SESSIONS => {
                let QueueSessionKey { tenant, queue, session } = QueueSessionKey::decode(key)?;
                let (record, session) = (SessionStateRecord::decode(value)?, Arc::from(session));
                self.with_queue(tenant, queue, |shard, reader, (tenant, queue)| {
                    if let Some(shard) = shard {
                        shard.change().put_queue_state(tenant, queue, &session, record.clone());
                    }
                    reader.queue_state(tenant, queue, session, record);
                });
            }
            keys::QUEUE_ENTRIES => {
                let QueueEntryKey { tenant, queue, part, number } = QueueEntryKey::decode(key)?;
                let entry = decode_queue_entry(number, value)?;
                self.with_queue(tenant, queue, |shard, reader, (tenant, queue)| {
                    if let Some(shard) = shard {
                        shard.change().put_queue_entry(tenant, queue, part, &entry);
                    }
                    reader.queue_entry(tenant, queue, part, entry);
                });
            }
            keys::QUEUE_BODIES => {
                let QueueBodyKey { tenant, queue, id } = QueueBodyKey::decode(key)?;
                let body = decode_body(value)?;
                self.with_queue(tenant, queue, |shard, _, (tenant, queue)| {
                    if let Some(shard) = shard {
                        shard.change().put_queue_body(tenant, queue, id, Arc::from(body));
                    }
                });
            }
            keys::QUEUE_SEEN => {
                let QueueSeenKey { tenant, queue, message_id } = QueueSeenKey::decode(key)?;
                let (until, message_id) = (decode_seen(value)?, Arc::from(message_id));
                self.with_queue(tenant, queue, |shard, reader, (tenant, queue)| {
                    if let Some(shard) = shard {
                        shard.change().put_queue_seen(tenant, queue, &message_id, until);
                    }
                    reader.queue_seen(tenant, queue, message_id, until);
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn session(
        &mut self,
        shard: ShardIndex,
        (tenant, client_id): (&str, &str),
        mut record: SessionRecord,
    ) {
        let found = self.engine.tenants.recover(tenant);
        let before = record.number;
        let mut shard = shard;
        if let Some(Moved { from, .. }) = self.moved {
            // The client has begun anew here: the session that the other broker had would have ended.
            if found.sessions.entry(client_id).get().is_some() {
                return;
            }
            let own = self.engine.shards.of(tenant, client_id);
            shard = own.index();
            record.number = own.change().new_session_number();
            record.answered_as.get_or_insert_with(|| guest_number(from, before));
            own.change().put_session(found.stored_number(), client_id, record.clone());
        }
        self.sessions.insert(before, (record.number, shard));
        let tenant = self.tenant(shard, tenant);
        self.reader(shard).session(tenant, client_id, record);
    }

    fn entry(
        &mut self,
        from: ShardIndex,
        (tenant, session, entry): (&str, SessionNumber, u64),
        mut record: EntryRecord,
    ) {
        let Some((session, shard)) = self.sessions.get(&session).copied() else { return };
        let tenant = self.tenant(shard, tenant);
        if self.is_new() {
            match (record.refers_to(), record.phase) {
                (None, Phase::Released(id)) => {
                    self.at(shard).change().put_released(tenant, session, entry, id);
                }
                (Some(id), _) => {
                    // A message without its bytes cannot be sent. There is none without.
                    let Some(message) = self.messages.get(&(from, id)).cloned() else { return };
                    let own = Arc::clone(self.at(shard));
                    let new = || own.change().new_message_ids(1);
                    record.message = *self.message_ids.entry((from, id, shard)).or_insert_with(new);
                    let put = record.clone();
                    own.change().put_entry(tenant, session, entry, put, &message);
                }
                (None, _) => {}
            }
        }
        self.reader(shard).entry(tenant, session, entry, record);
    }

    /// Takes the answer to a request. It is found in the shard of the key of the request, which the answer does not name.
    fn answer(
        &mut self,
        shard: ShardIndex,
        (tenant, session, packet_id): (&str, SessionNumber, u16),
        record: AnsweredRecord,
    ) {
        let number = self.tenant(0, tenant);
        let Some(Moved { from, me, .. }) = self.moved else {
            self.answered.push(AnsweredIn { shard, tenant: number, session, packet_id, record });
            return;
        };
        let as_guest = guest_number(from, session);
        let tenant = self.engine.tenants.recover(tenant);
        let own = self.own_guests.entry(number).or_insert_with(|| own_guests(&tenant, me));
        let session = own.get(&as_guest).copied().unwrap_or(as_guest);
        let of_keys = self.engine.shards.count_of_keys();
        for shard in 0..of_keys {
            let own = self.at(shard);
            own.change().put_answered(number, session, packet_id, record);
            self.answered.push(AnsweredIn { shard, tenant: number, session, packet_id, record });
        }
    }

    fn entity(
        &mut self,
        shard: ShardIndex,
        (tenant, path): (&str, &str),
        mut record: EntityRecord,
    ) {
        let before = record.queue;
        let mut shard = shard;
        if self.is_new() {
            let found = self.engine.tenants.recover(tenant);
            let own = match path.starts_with(bindings::STORED_UNDER) {
                true => found.shards.of(&found.name, path),
                false => shard_of_path(&found.shards, &found.name, path),
            };
            shard = own.index();
            record.queue = own.change().new_queue_number();
            own.change().put_entity(found.stored_number(), path, record.clone());
        }
        self.queues.insert(before, (record.queue, shard));
        let tenant = self.tenant(shard, tenant);
        self.reader(shard).entity(tenant, path, record);
    }

    /// Calls `take` with what the record of a queue concerns: the shard, if the record is new there, the reader, and the
    /// tenant with the queue. Does nothing if no entity has the queue.
    fn with_queue(
        &mut self,
        tenant: &str,
        queue: QueueNumber,
        take: impl FnOnce(Option<&DurableShard>, &mut Reader<'_>, (TenantNumber, QueueNumber)),
    ) {
        let Some((queue, shard)) = self.queues.get(&queue).copied() else { return };
        let tenant = self.tenant(shard, tenant);
        let own = self.is_new().then(|| Arc::clone(self.at(shard)));
        take(own.as_deref(), self.reader(shard), (tenant, queue));
    }

    /// Whether the contents are new to this broker.
    fn is_new(&self) -> bool {
        self.moved.is_some()
    }

    fn tenant(&mut self, shard: ShardIndex, name: &str) -> TenantNumber {
        self.reader(shard).tenant(name)
    }

    fn at(&self, shard: ShardIndex) -> &Arc<DurableShard> {
        &self.shards[usize::from(shard)]
    }
}

impl<'a> Adopting<'a> {
    fn reader(&mut self, shard: ShardIndex) -> &mut Reader<'a> {
        &mut self.readers[usize::from(shard)]
    }

    /// Puts everything in force. Returns the number of sessions.
    fn finish(self) -> usize {
        let is_new = self.is_new();
        let Self { engine, readers, received, answered, sessions, .. } = self;
        let mut by_number = HashMap::new();
        let mut found = Vec::new();
        for reader in readers {
            let one = reader.finish();
            by_number.extend(
                one.sessions
                    .iter()
                    .filter_map(|(_, own)| Some((own.stored_number()?, own.clone()))),
            );
            found.push(one);
        }
        let adopt_received = || {
            for (tenant, session, packet_id) in received {
                let Some(own) = by_number.get(&session) else { continue };
                let Some(durable) = own.durable() else { continue };
                if is_new {
                    durable.shard.change().note_received(tenant, session, packet_id, |note| {
                        *note = ReceivedRecord::All;
                    });
                }
                own.state().received.adopt(packet_id, durable.shard.index());
            }
        };
        if is_new {
            adopt_received();
            begin_adopted(engine, found, &answered);
        } else {
            // The identifiers of each session are those of the session that has left. No client is connected yet.
            begin_adopted(engine, found, &answered);
            adopt_received();
        }
        sessions.len()
    }
}

/// Asks the other brokers whether connections have ended whose watches have come with a slot: they have perhaps told the broker
/// that had it. To be called when they know where it is.
pub fn check_watches(engine: &Engine, slots: &Slots, slot: u16) {
    for tenant in engine.tenants.all() {
        if slots.slot_of_tenant(&tenant.name) == slot
            && let Some(store) = tenant.used_state_store()
        {
            for guest in store.watching() {
                tell(engine, &tenant, &guest, ToldKind::Check);
            }
        }
    }
}

/// Tells a connection of another broker something without a message.
fn tell(engine: &Engine, tenant: &Tenant, guest: &Guest, kind: ToldKind) {
    let Some(remote) = &tenant.remote else { return };
    let to = (&*guest.client_id, guest.told(kind));
    let sources = engine.shards.sources();
    remote.tell_inquirer(sources, guest.member, to, Commits::default(), (true, &[]));
}

/// The numbers of the stored sessions of a tenant at this broker, by the numbers that other brokers know them under.
fn own_guests(tenant: &Tenant, me: &str) -> HashMap<SessionNumber, SessionNumber> {
    let mut own = HashMap::new();
    tenant.sessions.for_each(|session| {
        if session.durable().is_some() {
            let number = session.answered_as();
            own.insert(guest_number(me, number), number);
        }
    });
    own
}
