//! Tenants: what belongs to one and never meets another's.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::ids::TenantNumber;
use barid_core::queue::{Overflow, QueueLimits, Room};
use barid_core::time::Timestamp;
use barid_core::topic_index::TopicIndex;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::amqp_clients::AmqpClients;
use crate::bindings::Bindings;
use crate::denials::DenialLog;
use crate::drops::DropLog;
use crate::durability::Durability;
use crate::durable::{Durable, Shards};
use crate::entities::{Alarm, Entities};
use crate::limits::{Limits, QueueOverflow, ShareStrategy};
use crate::metrics::{Counters, Totals};
use crate::names::{DEFAULT_TENANT, OTHERS};
use crate::retained::Retained;
use crate::session::{Session, SessionRef};
use crate::sessions::Sessions;
use crate::state_store::StateStore;
use crate::worker::Worker;

/// Tenants that were removed whose counters are kept by name: 2 MiB. Only where anybody may connect can there be
/// more, since users and keys name their tenants.
const RETIRED_MAX: usize = 1_000;

/// One tenant.
pub struct Tenant {
    /// Unique in the life of the broker.
    pub number: u64,
    /// The name.
    pub name: Box<str>,
    /// Who has subscribed to what.
    pub index: TopicIndex<SessionRef>,
    /// The sessions, by client identifier.
    pub sessions: Sessions,
    /// The retained messages.
    pub retained: RwLock<Retained>,
    /// Connections that have a session.
    pub connections: AtomicUsize,
    /// What waits in all queues.
    pub queued: Queued,
    /// Where its durable things are.
    pub shards: Arc<Shards>,
    /// The state store, made when it is first needed.
    state: OnceLock<Box<StateStore>>,
    /// Queues, topics and subscriptions, made when they are first needed.
    entities: OnceLock<Arc<Entities>>,
    /// What joins its MQTT clients to its entities.
    pub bindings: Bindings,
    /// Its AMQP connections.
    pub(crate) amqp_clients: Arc<AmqpClients>,
    /// What its clients were not allowed to do lately.
    pub(crate) denials: DenialLog,
    /// What was counted for a tenant of this name before, until that was removed.
    before: Option<Box<Totals>>,
    settings: RwLock<TenantSettings>,
    /// One for each thread, made when the thread first has to do with the tenant.
    counters: Box<[OnceLock<Box<ThreadLocal>>]>,
}

/// What a reload can change.
#[derive(Clone, Debug, Default)]
pub struct TenantSettings {
    /// The limits.
    pub limits: Arc<Limits>,
    /// The durability classes.
    pub durability: Arc<Durability>,
    /// How its shared subscriptions choose.
    pub share_strategy: ShareStrategy,
}

/// What one thread notes for a tenant.
#[derive(Debug, Default)]
struct ThreadLocal {
    counters: Counters,
    drops: DropLog,
}

/// What waits in all queues of a tenant.
#[derive(Debug, Default)]
pub struct Queued {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// Sessions whose publishers wait for room in any of the tenant's queues.
    full: Mutex<HashMap<u64, Weak<Session>>>,
    has_full: AtomicBool,
}

impl Queued {
    /// Notes that a queue has changed from so many messages and bytes to so many.
    pub fn count(&self, before: (usize, usize), after: (usize, usize)) {
        // Both wrap, and the sum is right nevertheless.
        self.messages.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.bytes.fetch_add(after.1.wrapping_sub(before.1), Ordering::Relaxed);
    }

    /// Has a session looked at when any queue of the tenant has got shorter.
    pub fn note_full(&self, id: u64, session: &Weak<Session>) {
        self.full.lock().entry(id).or_insert_with(|| Weak::clone(session));
        self.has_full.store(true, Ordering::Release);
    }

    /// The sessions to look at.
    pub fn take_full(&self) -> Vec<Weak<Session>> {
        if !self.has_full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut full = self.full.lock();
        self.has_full.store(false, Ordering::Release);
        full.drain().map(|(_, session)| session).collect()
    }

    /// How many messages wait.
    pub fn messages(&self) -> usize {
        self.messages.load(Ordering::Relaxed)
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Tenant {
    fn new(number: u64, name: &str, settings: TenantSettings, tenants: &Tenants) -> Self {
        Self {
            number,
            name: name.into(),
            index: TopicIndex::with_seed(tenants.seed),
            sessions: Sessions::default(),
            retained: RwLock::new(Retained::with_seed(tenants.seed)),
            connections: AtomicUsize::new(0),
            queued: Queued::default(),
            shards: Arc::clone(&tenants.shards),
            state: OnceLock::new(),
            entities: OnceLock::new(),
            bindings: Bindings::default(),
            amqp_clients: Arc::default(),
            denials: DenialLog::default(),
            before: tenants.retired.lock().take(name),
            settings: RwLock::new(settings),
            counters: (0..tenants.workers).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The number that stands for its name in what is to be stored.
    pub fn stored_number(&self) -> TenantNumber {
        TenantNumber(u32::try_from(self.number).expect("numbers are given one after another"))
    }

    /// The state store.
    pub fn state_store(&self) -> &StateStore {
        self.state.get_or_init(|| Box::new(StateStore::new(self.shards.count())))
    }

    /// Whether the keys of a shard are to be looked at for expired ones at this time, and not at another.
    pub fn has_alarm(&self, shard: u16, wall: Timestamp) -> bool {
        self.used_state_store().is_some_and(|store| store.partition(shard).alarm() == Some(wall))
    }

    /// Removes what is stored of the state store if nothing would be lost with that. False: something would.
    fn forget_void_state(&self, wall: Timestamp) -> bool {
        let Some(store) = self.used_state_store() else { return true };
        let is_void = store.is_void(wall);
        if is_void {
            for shard in self.shards.iter() {
                shard.change().remove_state_clock(self.stored_number());
            }
        }
        is_void
    }

    /// The state store, if anybody has ever had to do with it.
    pub fn used_state_store(&self) -> Option<&StateStore> {
        self.state.get().map(|store| &**store)
    }

    /// Its queues, topics and subscriptions, which `alarm` looks at when something in them is due.
    pub fn entities(self: &Arc<Self>, alarm: &Arc<dyn Alarm>) -> &Arc<Entities> {
        self.entities.get_or_init(|| {
            let me = Arc::downgrade(self);
            let most = move || me.upgrade().map_or(0, |tenant| tenant.limits().max_entities);
            let named = (self.stored_number(), &*self.name);
            Entities::new(named, &self.shards, alarm, Box::new(most))
        })
    }

    /// Its queues, topics and subscriptions, if anybody has ever had to do with them.
    pub fn used_entities(&self) -> Option<&Arc<Entities>> {
        self.entities.get()
    }

    /// As what a new session of a client is stored.
    pub fn new_durable(&self, client_id: &str) -> Durable {
        let shard = Arc::clone(self.shards.of(&self.name, client_id));
        let number = shard.change().new_session_number();
        Durable { shard, tenant: self.stored_number(), number }
    }

    /// Its limits, as they are now.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.settings.read().limits)
    }

    /// Its durability classes, as they are now.
    pub fn durability(&self) -> Arc<Durability> {
        Arc::clone(&self.settings.read().durability)
    }

    /// How its shared subscriptions choose, as they do now.
    pub fn share_strategy(&self) -> ShareStrategy {
        self.settings.read().share_strategy
    }

    /// What a session's queue may hold.
    pub fn queue_limits(&self) -> QueueLimits {
        let settings = self.settings.read();
        let limits = &settings.limits;
        QueueLimits {
            messages: limits.max_queued_messages,
            bytes: limits.max_queued_bytes,
            overflow: match limits.queue_overflow {
                QueueOverflow::DropNewest => Overflow::DropNewest,
                QueueOverflow::DropOldest => Overflow::DropOldest,
                QueueOverflow::Reject => Overflow::Reject,
                QueueOverflow::Block => Overflow::Block,
            },
            tenant: Room {
                messages: limits.max_tenant_queued_messages.saturating_sub(self.queued.messages()),
                bytes: limits.max_tenant_queued_bytes.saturating_sub(self.queued.bytes()),
            },
        }
    }

    /// The counters of one thread.
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.of_thread(worker).counters
    }

    /// Counts a message that does not reach a client, and remembers it.
    pub fn dropped(&self, worker: &Worker, reason: DropReason, topic: Option<&str>, client: &str) {
        let own = self.of_thread(worker.id);
        own.counters.dropped(reason);
        own.drops.push(worker.now, topic, client, reason);
    }

    /// What all threads remember of dropped messages.
    pub fn drop_logs(&self) -> impl Iterator<Item = &DropLog> {
        self.counters.iter().filter_map(OnceLock::get).map(|own| &own.drops)
    }

    fn of_thread(&self, worker: usize) -> &ThreadLocal {
        self.counters[worker].get_or_init(Box::default)
    }

    /// How many retained messages clients have left.
    pub fn retained_by_clients(&self) -> usize {
        self.retained.read().len()
    }

    /// The sum of what all threads have counted since the start of the broker, also while there was no tenant of
    /// this name.
    pub fn totals(&self) -> Totals {
        let mut totals = self.before.as_deref().cloned().unwrap_or_default();
        totals.expired_keys += self.used_state_store().map_or(0, |store| store.usage().expired());
        for own in self.counters.iter().filter_map(OnceLock::get) {
            totals.add(&own.counters);
        }
        totals
    }
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All tenants. A tenant comes into being when its first client connects.
pub struct Tenants {
    by_name: RwLock<HashMap<Box<str>, Arc<Tenant>>>,
    workers: usize,
    most: AtomicUsize,
    numbers: AtomicU64,
    seed: u64,
    shards: Arc<Shards>,
    /// What was counted for tenants that were removed.
    retired: Mutex<Retired>,
}

/// What was counted for tenants that were removed because nobody used them: their counters go on if they come
/// back, and do not vanish if they do not.
#[derive(Debug, Default)]
struct Retired {
    by_name: HashMap<Box<str>, Box<Totals>>,
    /// The sum of those for which there was no room in `by_name`.
    others: Option<Box<Totals>>,
}

impl Retired {
    /// Takes what was counted for a tenant that comes back.
    fn take(&mut self, name: &str) -> Option<Box<Totals>> {
        self.by_name.remove(name)
    }

    /// Keeps what was counted for a tenant that is removed.
    fn put(&mut self, name: &str, totals: Totals) {
        if self.by_name.len() < RETIRED_MAX {
            self.by_name.insert(name.into(), Box::new(totals));
        } else {
            self.others.get_or_insert_default().join(&totals);
        }
    }
}

impl Tenants {
    /// No tenants yet; `workers` threads will count, and there will be at most `most` tenants.
    pub fn new(workers: usize, most: usize, seed: u64, shards: Arc<Shards>) -> Self {
        Self {
            shards,
            by_name: RwLock::default(),
            workers,
            most: AtomicUsize::new(most),
            numbers: AtomicU64::new(0),
            seed,
            retired: Mutex::default(),
        }
    }

    /// The tenant of this name, made with `limits` if it is new. `None`: there are too many.
    pub fn get_or_create(
        &self,
        name: &str,
        settings: impl FnOnce() -> TenantSettings,
    ) -> Option<Arc<Tenant>> {
        if let Some(tenant) = self.by_name.read().get(name) {
            return Some(Arc::clone(tenant));
        }
        let mut by_name = self.by_name.write();
        if let Some(tenant) = by_name.get(name) {
            return Some(Arc::clone(tenant));
        }
        if by_name.len() >= self.most.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.insert(&mut by_name, name, settings()))
    }

    /// The tenant of this name that something was found of in the store, however many there may be.
    pub fn recover(&self, name: &str, settings: impl FnOnce() -> TenantSettings) -> Arc<Tenant> {
        let mut by_name = self.by_name.write();
        match by_name.get(name) {
            Some(tenant) => Arc::clone(tenant),
            None => self.insert(&mut by_name, name, settings()),
        }
    }

    fn insert(
        &self,
        by_name: &mut HashMap<Box<str>, Arc<Tenant>>,
        name: &str,
        settings: TenantSettings,
    ) -> Arc<Tenant> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let tenant = Arc::new(Tenant::new(number, name, settings, self));
        self.shards.name_tenant(tenant.stored_number(), name);
        by_name.insert(name.into(), Arc::clone(&tenant));
        tenant
    }

    /// The tenant of this name, if it exists.
    pub fn get(&self, name: &str) -> Option<Arc<Tenant>> {
        self.by_name.read().get(name).cloned()
    }

    /// All tenants, by name.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.by_name.read().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Removes tenants that nobody uses: without sessions, connections, retained messages of clients, entities,
    /// bindings or keys.
    pub fn remove_unused(&self, wall: Timestamp) {
        self.by_name.write().retain(|name, tenant| {
            // Whoever has to do with a tenant holds a reference, and gets one under this lock.
            **name == *DEFAULT_TENANT
                || Arc::strong_count(tenant) > 1
                || tenant.retained_by_clients() > 0
                || !tenant.bindings.are_void()
                || tenant.used_entities().is_some_and(|entities| !entities.is_empty())
                || !tenant.forget_void_state(wall)
                || {
                    self.retired.lock().put(name, tenant.totals());
                    false
                }
        });
    }

    /// All tenants by name, and what was counted for those that were removed: by name, too, and last the sum of
    /// those that have no place of their own, as [`OTHERS`]. No tenant is missing or there twice.
    pub fn counted(&self) -> (Vec<Arc<Tenant>>, Vec<(String, Totals)>) {
        // Tenants come and go under this lock.
        let by_name = self.by_name.read();
        let mut tenants: Vec<_> = by_name.values().cloned().collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        let retired = self.retired.lock();
        let named = retired.by_name.iter();
        let mut all: Vec<_> =
            named.map(|(name, totals)| (name.to_string(), (**totals).clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.extend(retired.others.as_ref().map(|others| (OTHERS.into(), (**others).clone())));
        (tenants, all)
    }

    /// New settings for all.
    pub fn set(&self, most: usize, settings_of: impl Fn(&str) -> TenantSettings) {
        self.most.store(most, Ordering::Relaxed);
        for tenant in self.by_name.read().values() {
            *tenant.settings.write() = settings_of(&tenant.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barid_store::memory::MemoryStore;

    fn settings(max_qos: u8) -> TenantSettings {
        TenantSettings {
            limits: Arc::new(Limits { max_qos, ..Limits::default() }),
            ..TenantSettings::default()
        }
    }

    #[test]
    fn tenants_are_made_once_and_bounded() {
        let store: Arc<dyn barid_store::Store> = Arc::new(MemoryStore::new(0));
        let shards = Shards::new(&[store], 0);
        let tenants = Tenants::new(1, 2, 0, Arc::new(shards));
        let a = tenants.get_or_create("a", || settings(2)).unwrap();
        assert!(Arc::ptr_eq(&a, &tenants.get_or_create("a", || settings(2)).unwrap()));
        tenants.get_or_create("b", || settings(2)).unwrap();
        assert!(tenants.get_or_create("c", || settings(2)).is_none());
        tenants.set(3, |_| settings(1));
        assert_eq!(a.limits().max_qos, 1);
        assert!(tenants.get_or_create("c", || settings(2)).is_some());
        tenants.remove_unused(Timestamp::default());
        let names: Vec<_> = tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        assert_eq!(names, ["a"], "it is still referred to");
    }
}
