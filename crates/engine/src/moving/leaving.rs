//! The contents of a slot leave memory, are read from the store, and are forgotten.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::durable::keys::{
    self, AnsweredKey, EntityKey, EntryKey, MessageKey, QueueBodyKey, QueueEntryKey, QueueSeenKey,
    QueueSessionKey, ReceivedKey, SessionKey, StateClockKey, StateKey, SubscriptionKey,
};
use barid_core::durable::records::{RecordError, decode_queue_entry};
use barid_core::durable::{EntityRecord, ReceivedRecord};
use barid_core::ids::StoredAs;
use barid_core::session::EntryRecord;
use barid_store::{Keyspace, StoreError};
use hashbrown::HashSet;
use mqtt_proto::ReasonCode;
use thiserror::Error;

use super::records::{Damaged, Record, Records};
use super::watches::{WATCHES, Watch};
use crate::cluster::{Cluster, Slots};
use crate::engine::Engine;
use crate::session::SessionRef;
use crate::state_store::{Watching, guest_number};
use crate::tenant::Tenant;

/// The keyspaces with what belongs to a tenant as a whole. A queue comes before what is in it.
const OF_TENANT: [Keyspace; 9] = [
    keys::STATE_CLOCKS,
    keys::STATE,
    keys::STATE_ANSWERS,
    keys::ENTITIES,
    keys::QUEUE_NUMBERS,
    keys::QUEUE_SESSIONS,
    keys::QUEUE_ENTRIES,
    keys::QUEUE_BODIES,
    keys::QUEUE_SEEN,
];

/// A slot that is about to leave this broker. It takes no clients any more.
pub struct Leaving {
    /// The sessions of the slot.
    sessions: Vec<(Arc<Tenant>, SessionRef)>,
    /// The tenants that have their state store and their entities in the slot.
    tenants: Vec<Arc<Tenant>>,
}

/// Why the contents of a slot cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record cannot be read.
    #[error("a record cannot be read: {0}")]
    Record(#[from] RecordError),
    /// The records are cut off.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

impl Leaving {
    /// Finds the contents of a slot, which must be [closed](Slots::close), or belong to another broker.
    pub fn of(engine: &Engine, slots: &Slots, slot: u16) -> Self {
        let (mut sessions, mut tenants) = (Vec::new(), Vec::new());
        for tenant in engine.tenants.all() {
            tenant.sessions.for_each(|session| {
                let outlives = session.durable().is_some() || session.state().expiry > 0;
                if outlives && slots.slot(&tenant.name, &session.client_id) == slot {
                    sessions.push((Arc::clone(&tenant), session.clone()));
                }
            });
            if slots.slot_of_tenant(&tenant.name) == slot {
                tenants.push(tenant);
            }
        }
        Self { sessions, tenants }
    }

    /// Disconnects the clients that use the contents: those with sessions in the slot, and those that use entities.
    pub fn disconnect(&self) {
        for (_, session) in self.sessions.iter().filter(|(_, session)| session.is_online()) {
            session.close_connection(ReasonCode::ServerBusy);
        }
        for tenant in &self.tenants {
            let mut after = 0;
            loop {
                let page = tenant.amqp_clients.page(after, 1_000);
                let Some(last) = page.last() else { break };
                after = last.id.0;
                page.iter().for_each(|client| client.close());
            }
        }
    }

    /// Whether all clients have gone, and their connections have noted that.
    pub fn is_quiet(&self) -> bool {
        let is_away =
            |session: &SessionRef| !session.is_online() && session.state().away_since.is_some();
        self.sessions.iter().all(|(_, session)| session.has_ended() || is_away(session))
            && self.tenants.iter().all(|tenant| tenant.amqp_clients.count() == 0)
    }

    /// Takes the contents out of memory. From now on they are in the store only, as soon as everything that was noted is
    /// durable. Nothing must be published meanwhile: it would be lost.
    pub fn leave(&self, engine: &Engine) {
        for tenant in &self.tenants {
            tenant.look_for_home(engine.clock.now());
        }
        engine.rounds.wait();
        for (_, session) in &self.sessions {
            session.leave();
        }
        for tenant in &self.tenants {
            tenant.bindings.look_for_home();
            for shard in engine.shards.iter() {
                if let Some(store) = tenant.used_state_store() {
                    store.close(shard.index());
                }
                if let Some(entities) = tenant.used_entities() {
                    entities.leave(shard.index());
                }
            }
        }
        engine.rounds.wait();
    }

    /// The approximate size of the contents, in bytes: what the quotas of tenants count.
    pub fn bytes(&self) -> usize {
        let queued = |session: &SessionRef| session.inspect(|outbound, _| outbound.queue().bytes());
        let of_sessions: usize = self.sessions.iter().map(|(_, session)| queued(session)).sum();
        let of_tenant = |tenant: &Arc<Tenant>| {
            let keys = tenant.used_state_store().map_or(0, |store| store.usage().bytes());
            let entities = tenant.used_entities().map_or(0, |entities| entities.bytes());
            usize::try_from(keys).unwrap_or(usize::MAX).saturating_add(entities)
        };
        of_sessions.saturating_add(self.tenants.iter().map(of_tenant).sum())
    }

    /// Number of sessions in the slot.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The names of the tenants that have their state store and their entities in the slot.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        self.tenants.iter().map(|tenant| &*tenant.name)
    }

    /// Forgets sessions in memory.
    pub(super) fn forget_sessions(&self, which: impl Fn(&SessionRef) -> bool) {
        for (tenant, session) in self.sessions.iter().filter(|(_, session)| which(session)) {
            {
                let mut entry = tenant.sessions.entry(&session.client_id);
                if entry.get().is_some_and(|present| present.id == session.id) {
                    entry.remove();
                }
            }
            let subscriptions = std::mem::take(&mut session.state().subscriptions);
            for subscription in subscriptions.into_iter() {
                tenant.unsubscribe(&subscription.filter, session.id);
            }
        }
    }

    /// Reads the records of the slot from the stores.
    ///
    /// # Errors
    /// A store cannot be read.
    pub fn read(&self, engine: &Engine) -> Result<Records, ReadError> {
        let mut reading = Reading::of(engine);
        self.read_sessions(&mut reading)?;
        for keyspace in OF_TENANT {
            for tenant in &self.tenants {
                StateClockKey { tenant: &tenant.name }.encode(&mut reading.key);
                for shard in engine.shards.iter() {
                    reading.scan(shard.index(), keyspace, |_, _| Ok(()))?;
                }
            }
        }
        self.read_watches(&mut reading);
        Ok(reading.records)
    }

    fn read_watches(&self, reading: &mut Reading<'_>) {
        let Some(cluster) = &reading.engine.cluster else { return };
        let mut value = Vec::new();
        for tenant in &self.tenants {
            let Some(store) = tenant.used_state_store() else { continue };
            for shard in tenant.shards.iter() {
                let partition = store.partition(shard.index());
                let watches = partition.watches();
                let each = watches.flat_map(|(key, all)| all.iter().map(move |one| (key, one)));
                for (key, watching) in each {
                    value.clear();
                    if encode_watch(cluster, (&tenant.name, key), watching, &mut value).is_some() {
                        let record =
                            Record { shard: 0, keyspace: WATCHES, key: &[], value: &value };
                        reading.records.push(record);
                    }
                }
            }
        }
    }

    fn read_sessions(&self, reading: &mut Reading<'_>) -> Result<(), ReadError> {
        let stored = || {
            self.sessions.iter().filter_map(|(tenant, session)| {
                let durable = session.durable()?;
                Some((&*tenant.name, session, durable))
            })
        };
        for (tenant, session, durable) in stored() {
            SessionKey { tenant, client_id: &session.client_id }.encode(&mut reading.key);
            reading.get(durable.shard.index(), keys::SESSIONS)?;
        }
        for (tenant, _, durable) in stored() {
            let session = durable.number;
            SubscriptionKey { tenant, session, filter: "" }.encode(&mut reading.key);
            reading.scan(durable.shard.index(), keys::SUBSCRIPTIONS, |_, _| Ok(()))?;
        }
        // Messages come before the entries that refer to them.
        let mut entries = Reading::of(reading.engine);
        let mut messages = HashSet::new();
        for (tenant, _, durable) in stored() {
            let session = durable.number;
            EntryKey { tenant, session, entry: 1 }.encode(&mut entries.key);
            entries.key.truncate(entries.key.len() - size_of::<u64>());
            let mut found = Vec::new();
            entries.scan(durable.shard.index(), keys::ENTRIES, |_, value| {
                found.extend(EntryRecord::decode(value)?.refers_to());
                Ok(())
            })?;
            for message in found {
                if messages.insert((durable.shard.index(), message)) {
                    MessageKey { tenant, message }.encode(&mut reading.key);
                    reading.get(durable.shard.index(), keys::MESSAGES)?;
                }
            }
        }
        reading.append(&entries.records)?;
        // Shards of this broker know which of their recipients have a message. The other broker is told only whether all have it.
        let mut not_all = Vec::new();
        ReceivedRecord::default().encode(&mut not_all);
        for (tenant, session, durable) in stored() {
            let handed_on: HashSet<u16> = session.state().received.handed_on().collect();
            let session = durable.number;
            ReceivedKey { tenant, session, packet_id: 1 }.encode(&mut reading.key);
            reading.key.truncate(reading.key.len() - size_of::<u16>());
            for shard in reading.engine.shards.iter() {
                reading.scan_to(shard.index(), keys::RECEIVED, |records, record| {
                    let all_have_it =
                        handed_on.contains(&ReceivedKey::decode(record.key)?.packet_id);
                    let value = if all_have_it { record.value } else { &not_all };
                    records.push(Record { value, ..record });
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// Encodes the watch of a key. Returns `None` if the connection has ended.
fn encode_watch(
    cluster: &Cluster,
    (tenant, key): (&str, &[u8]),
    watching: &Watching,
    out: &mut Vec<u8>,
) -> Option<()> {
    match watching {
        Watching::Here { session, connection } => {
            let session = SessionRef::upgrade(session)?;
            let watch = Watch {
                tenant,
                broker: cluster.slots()?.me(),
                client_id: &session.client_id,
                connection: connection.0,
                session: session.answered_as(),
                is_stored: session.durable().is_some(),
                key,
            };
            watch.encode(out);
        }
        Watching::Elsewhere(guest) => {
            let watch = Watch {
                tenant,
                broker: &cluster.name_of(guest.member)?,
                client_id: &guest.client_id,
                connection: guest.connection,
                session: guest.session,
                is_stored: guest.is_stored,
                key,
            };
            watch.encode(out);
        }
    }
    Some(())
}

/// The stores that are being read.
struct Reading<'a> {
    engine: &'a Engine,
    records: Records,
    /// The key to be read, or the beginning of keys.
    key: Vec<u8>,
}

impl<'a> Reading<'a> {
    fn of(engine: &'a Engine) -> Self {
        Self { engine, records: Records::default(), key: Vec::new() }
    }

    /// Reads the record of [`Self::key`], if it is there.
    fn get(&mut self, shard: u16, keyspace: Keyspace) -> Result<(), ReadError> {
        let shard = self.engine.shards.get(shard);
        if let Some(value) = shard.store().get(keyspace, &self.key)? {
            let record = Record { shard: shard.index(), keyspace, key: &self.key, value: &value };
            self.records.push(record);
        }
        Ok(())
    }

    /// Reads the records whose keys begin with [`Self::key`].
    fn scan(
        &mut self,
        shard: u16,
        keyspace: Keyspace,
        mut look: impl FnMut(&[u8], &[u8]) -> Result<(), RecordError>,
    ) -> Result<(), ReadError> {
        self.scan_to(shard, keyspace, |records, record| {
            records.push(record);
            look(record.key, record.value)
        })
    }

    /// Passes the records whose keys begin with [`Self::key`] to `add`.
    fn scan_to(
        &mut self,
        shard: u16,
        keyspace: Keyspace,
        mut add: impl FnMut(&mut Records, Record<'_>) -> Result<(), RecordError>,
    ) -> Result<(), ReadError> {
        let shard = self.engine.shards.get(shard);
        let (mut result, index) = (Ok(()), shard.index());
        let Self { records, key: prefix, .. } = self;
        shard.store().scan(keyspace, prefix, prefix, &mut |key, value| {
            let record = Record { shard: index, keyspace, key, value };
            result = add(records, record).map_err(ReadError::from);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    fn append(&mut self, records: &Records) -> Result<(), ReadError> {
        records.for_each(|record| {
            self.records.push(record);
            Ok(())
        })
    }
}

/// Forgets the contents of a slot in memory: another broker has them now. `me` is the name of this broker.
pub fn forget(engine: &Engine, leaving: &Leaving, me: &str) {
    for (tenant, session) in &leaving.sessions {
        if let Some(store) = tenant.used_state_store().filter(|_| session.durable().is_some()) {
            // If the state store of the tenant stays, it knows the session as a guest from now on.
            let number = session.answered_as();
            store.rename_session(tenant, number, guest_number(me, number));
        }
        if let Some(number) = session.stored_number() {
            tenant.answered_as.remove(number);
        }
    }
    leaving.forget_sessions(|_| true);
    for tenant in &leaving.tenants {
        tenant.look_for_home(engine.clock.now());
        if let Some(store) = tenant.used_state_store() {
            store.forget_watches();
        }
        tenant.bindings.forget_stored();
        if let Some(entities) = tenant.used_entities() {
            entities.retain(|_| false);
        }
    }
}

/// Removes the records of a slot from the stores. Nothing new of the slot may be here before all that is durable.
///
/// # Errors
/// A record cannot be read. Those before it are removed.
pub fn remove(engine: &Engine, records: &Records) -> Result<(), ReadError> {
    records.for_each(|record| remove_one(engine, record))
}

/// Removes a record from its store.
fn remove_one(engine: &Engine, record: Record<'_>) -> Result<(), ReadError> {
    let Record { shard, keyspace, key, value } = record;
    let tenant = |name: &str| engine.tenants.recover(name).stored_number();
    let shard = engine.shards.get(shard);
    match keyspace {
        keys::SESSIONS => {
            let SessionKey { tenant: name, client_id } = SessionKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_session(tenant, client_id);
        }
        keys::SUBSCRIPTIONS => {
            let SubscriptionKey { tenant: name, session, filter } = SubscriptionKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_subscription(tenant, session, filter);
        }
        keys::ENTRIES => {
            let EntryKey { tenant: name, session, entry } = EntryKey::decode(key)?;
            let (tenant, record) = (tenant(name), EntryRecord::decode(value)?);
            let entry = NonZeroU64::new(entry).expect("EntryKey::decode refuses 0");
            let stored = StoredAs { entry, message: record.message };
            let is_released = record.refers_to().is_none();
            shard.change().remove_entry(tenant, session, stored, is_released);
        }
        keys::RECEIVED => {
            let ReceivedKey { tenant: name, session, packet_id } = ReceivedKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_received(tenant, session, packet_id);
        }
        keys::STATE => {
            let StateKey { tenant: name, key } = StateKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_state(tenant, &Arc::from(key));
        }
        keys::STATE_ANSWERS => {
            let AnsweredKey { tenant: name, session, packet_id } = AnsweredKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_answered(tenant, session, packet_id);
        }
        keys::ENTITIES => {
            let EntityKey { tenant: name, path } = EntityKey::decode(key)?;
            let (tenant, record) = (tenant(name), EntityRecord::decode(value)?);
            shard.change().remove_entity(tenant, path, record.queue);
        }
        keys::QUEUE_SESSIONS => {
            let QueueSessionKey { tenant: name, queue, session } = QueueSessionKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_queue_state(tenant, queue, &session.into());
        }
        keys::QUEUE_ENTRIES => {
            let QueueEntryKey { tenant: name, queue, part, number } = QueueEntryKey::decode(key)?;
            let tenant = tenant(name);
            decode_queue_entry(number, value)?;
            shard.change().remove_queue_entry(tenant, queue, part, number);
        }
        keys::QUEUE_BODIES => {
            let QueueBodyKey { tenant: name, queue, id } = QueueBodyKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_queue_body(tenant, queue, id);
        }
        keys::QUEUE_SEEN => {
            let QueueSeenKey { tenant: name, queue, message_id } = QueueSeenKey::decode(key)?;
            let tenant = tenant(name);
            shard.change().remove_queue_seen(tenant, queue, &message_id.into());
        }
        // Messages go with their last entry, reserved numbers with their entity. The clock of a tenant stays: it does not go
        // back if the slot returns.
        _ => {}
    }
    Ok(())
}

/// Returns the slots of which something is here: stored sessions, keys, entities.
pub fn occupied(engine: &Engine, slots: &Slots) -> BTreeSet<u16> {
    let mut occupied = BTreeSet::new();
    for tenant in engine.tenants.all() {
        tenant.sessions.for_each(|session| {
            if session.durable().is_some() {
                occupied.insert(slots.slot(&tenant.name, &session.client_id));
            }
        });
        let has_keys = tenant.used_state_store().is_some_and(|store| store.usage().keys() > 0);
        let has_entities = tenant.used_entities().is_some_and(|entities| !entities.is_empty());
        if has_keys || has_entities {
            occupied.insert(slots.slot_of_tenant(&tenant.name));
        }
    }
    occupied
}

/// Slots have other brokers than before: all tenants look where their state stores and entities are. Returns the names of those
/// for which that has changed.
pub fn homes_have_changed(engine: &Engine) -> Vec<Arc<Tenant>> {
    let mut changed = Vec::new();
    for tenant in engine.tenants.all() {
        let before = tenant.home();
        tenant.look_for_home(engine.clock.now());
        if tenant.home() != before {
            tenant.bindings.look_for_home();
            changed.push(tenant);
        }
    }
    changed
}
