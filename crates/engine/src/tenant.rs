//! Tenants: isolated namespaces, each with its own sessions, subscriptions, entities and counters.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use barid_core::time::{MonoTime, WallTime};
use barid_core::topic_index::{SubscribeOptions, TopicIndex};
use barid_peers::Used;
use hashbrown::HashMap;
use mqtt_proto::topic;

use crate::account::{Account, TenantSettings};
use crate::amqp_clients::AmqpClients;
use crate::bindings::Bindings;
use crate::cluster::{Cluster, Home, Remote};
use crate::denials::DenialLog;
use crate::durable::{Commits, Shards};
use crate::entities::{Admits, AdmitsBytes, Alarm, Entities};
use crate::metrics::Totals;
use crate::names::{DEFAULT_TENANT, OTHERS};
use crate::random::Random;
use crate::replicated::Replicated;
use crate::session::{SessionRef, Subscription};
use crate::sessions::Sessions;
use crate::state_store::{Inquirers, StateStore};
use crate::sync::{Mutex, RwLock};
use crate::tapping::MessageTracing;

/// Maximum number of removed tenants whose counters are kept by name; these take 2 MiB. The counters of
/// further ones are added up. There can be more only where anybody may connect, because users and keys name
/// their tenants.
const RETIRED_MAX: usize = 1_000;

/// One tenant: its [`Account`], and the state that refers to its sessions.
pub struct Tenant {
    /// The part that its sessions refer to.
    pub account: Arc<Account>,
    /// The subscriptions of its sessions.
    pub index: TopicIndex<SessionRef>,
    /// The sessions, by client identifier.
    pub sessions: Sessions,
    /// The bindings between its MQTT topics and its entities.
    pub bindings: Bindings,
    /// Its AMQP connections.
    pub amqp_clients: Arc<AmqpClients>,
    /// Recent actions of its clients that were not allowed.
    pub denials: DenialLog,
    /// The state store, created when it is first needed.
    state: OnceLock<Box<StateStore>>,
    /// Queues, topics and subscriptions, created when they are first needed.
    entities: OnceLock<Arc<Entities>>,
    /// The other brokers; `None`: there is no cluster.
    pub remote: Option<Remote>,
    /// Its clients that have asked the state store of another broker.
    pub inquirers: Inquirers,
}

impl Tenant {
    fn new(account: Account, cluster: Option<&Arc<Cluster>>) -> Self {
        let random = account.random;
        let remote = || cluster.map(|cluster| Remote::of(cluster, &account.name));
        Self {
            remote: remote(),
            inquirers: Inquirers::default(),
            bindings: Bindings::of(remote()),
            account: Arc::new(account),
            index: TopicIndex::with_seed(random.number()),
            sessions: Sessions::new(random),
            amqp_clients: Arc::default(),
            denials: DenialLog::default(),
            state: OnceLock::new(),
            entities: OnceLock::new(),
        }
    }

    /// Adds one subscription of a session to the index.
    pub fn subscribe(&self, session: &SessionRef, subscription: &Subscription) {
        let options = SubscribeOptions {
            qos: subscription.qos,
            no_local: subscription.no_local,
            retain_as_published: subscription.retain_as_published,
            identifier: subscription.identifier,
        };
        let (index, filter) = (&self.index, &*subscription.filter);
        let is_new = match topic::parse_shared(filter) {
            Ok(Some(shared)) => {
                index.subscribe_shared(shared.group, shared.filter, session, options)
            }
            _ => index.subscribe(filter, session, options),
        };
        if let Some(remote) = self.remote.as_ref().filter(|_| is_new) {
            remote.subscribed(filter);
        }
    }

    /// Returns what must be done before a subscription with this filter has an effect on all brokers of the cluster that
    /// may acknowledge messages.
    pub(crate) fn heard_everywhere(&self, filter: &str) -> Commits {
        self.remote.as_ref().map_or_else(Commits::default, |remote| remote.heard_everywhere(filter))
    }

    /// Removes one subscription of a session from the index. Returns whether there was one.
    pub fn unsubscribe(&self, filter: &str, session: u64) -> bool {
        let existed = match topic::parse_shared(filter) {
            Ok(Some(shared)) => self.index.unsubscribe_shared(shared.group, shared.filter, session),
            _ => self.index.unsubscribe(filter, session),
        };
        if let Some(remote) = self.remote.as_ref().filter(|_| existed) {
            remote.unsubscribed(filter);
        }
        existed
    }

    /// Number of subscriptions of its sessions at all brokers.
    pub fn subscriptions(&self) -> usize {
        let here = self.index.subscription_count();
        here.saturating_add(self.account.quotas.elsewhere().subscriptions())
    }

    /// What the tenant uses here of what its limits allow at all brokers together.
    pub(crate) fn used(&self) -> Used {
        let Account { quotas, queued, .. } = &*self.account;
        Used {
            connections: quotas.usage().connections() as u64,
            sessions: self.sessions.len() as u64,
            subscriptions: self.index.subscription_count() as u64,
            queued_messages: queued.messages() as u64,
            queued_bytes: queued.bytes() as u64,
            spent: quotas.usage().spent(),
        }
    }

    /// The broker that has the state store of the tenant, and its entities with their bindings.
    pub fn home(&self) -> Home {
        self.remote.as_ref().map_or(Home::Each, Remote::home)
    }

    /// Looks up which broker has the state store of the tenant, and its entities. Clients that have asked the broker that had
    /// them before go on if this one holds for the move: all that they have asked for is answered, and the other broker
    /// has their watches. Otherwise they are disconnected. Bindings stay as they are.
    pub(crate) fn look_for_home(&self, now: MonoTime) {
        let Some(remote) = &self.remote else { return };
        let (before, home) = (remote.look_for_home(), remote.home());
        let is_lost = match before {
            Home::Elsewhere(_) => !remote.holds_for_move(now),
            Home::Closed => false,
            Home::Each | Home::Here => return,
        };
        if before != home && (is_lost || remote.is_out(home)) {
            self.inquirers.disconnect();
        }
    }

    /// Returns the state store, and creates it if it does not exist.
    pub fn state_store(&self) -> &StateStore {
        self.state.get_or_init(|| Box::new(StateStore::new(self.shards.count(), self.random)))
    }

    /// Returns the state store, if it was ever used.
    pub fn used_state_store(&self) -> Option<&StateStore> {
        self.state.get().map(|store| &**store)
    }

    /// Whether `wall` is the time at which the keys of a shard are next checked for expired ones.
    pub(crate) fn has_alarm(&self, shard: u16, wall: WallTime) -> bool {
        self.used_state_store().is_some_and(|store| store.partition(shard).alarm() == Some(wall))
    }

    /// Removes the stored data of the state store if nothing would be lost. Returns false, and removes
    /// nothing, if something would be.
    fn forget_void_state(&self, now: MonoTime, wall: WallTime) -> bool {
        let Some(store) = self.used_state_store() else { return true };
        let is_void = store.is_void(now, wall);
        if is_void {
            for shard in self.shards.iter() {
                shard.change().remove_state_clock(self.stored_number());
            }
        }
        is_void
    }

    /// Returns the queues, topics and subscriptions, and creates their table if it does not exist. `alarm`
    /// schedules work on them.
    pub fn entities(&self, alarm: &Arc<dyn Alarm>) -> &Arc<Entities> {
        self.entities.get_or_init(|| {
            let account = Arc::downgrade(&self.account);
            let admits = move |count| {
                account.upgrade().map_or(Err(0), |account| account.admits_entities(count))
            };
            let account = Arc::downgrade(&self.account);
            let admits_bytes = move |bytes| {
                account.upgrade().is_some_and(|account| account.admits_entity_bytes(bytes))
            };
            let named = (self.stored_number(), &*self.name);
            let admit = (Box::new(admits) as Admits, Box::new(admits_bytes) as AdmitsBytes);
            Entities::new(named, &self.shards, alarm, self.random, admit)
        })
    }

    /// Returns the queues, topics and subscriptions, if they were ever used.
    pub fn used_entities(&self) -> Option<&Arc<Entities>> {
        self.entities.get()
    }

    /// Number of connections that have a session, or a key.
    pub fn connections(&self) -> usize {
        self.quotas.usage().connections()
    }

    /// Returns the sum of the counters of all threads since the start of the broker, including those of
    /// earlier tenants of this name.
    pub fn totals(&self) -> Totals {
        let mut totals = self.counted();
        totals.expired_keys += self.used_state_store().map_or(0, |store| store.usage().expired());
        totals
    }

    /// Whether nothing would be lost by removing the tenant: it has no sessions, connections, retained
    /// messages of clients, entities, bindings, keys or recent denials. All other users of a tenant hold a reference to it or
    /// to its account, so the reference counts cover them.
    fn is_unused(me: &Arc<Self>, now: MonoTime, wall: WallTime) -> bool {
        Arc::strong_count(me) == 1
            && me.denials.is_quiet(now)
            && Arc::strong_count(&me.account) == 1
            && me.retained_by_clients() == 0
            && !me.retained.read().has_tombstones()
            && me.bindings.are_void()
            && me.used_entities().is_none_or(|entities| entities.is_empty())
            && me.forget_void_state(now, wall)
    }
}

/// A tenant has all members of its account.
impl Deref for Tenant {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All tenants. A tenant is created when its first client connects.
pub struct Tenants {
    by_name: RwLock<HashMap<Box<str>, Arc<Tenant>>>,
    workers: usize,
    most: AtomicUsize,
    settings_of: RwLock<SettingsOf>,
    numbers: AtomicU64,
    random: Random,
    shards: Arc<Shards>,
    cluster: Option<(Arc<Cluster>, Arc<Replicated>)>,
    /// The counters of removed tenants.
    retired: Mutex<Retired>,
    message_tracing: OnceLock<Arc<dyn MessageTracing>>,
}

/// The counters of tenants that were removed because they were unused. They go on if a tenant of the name is
/// created again, and otherwise do not vanish from the metrics.
#[derive(Debug, Default)]
struct Retired {
    by_name: HashMap<Box<str>, Box<Totals>>,
    /// The sum of the counters that had no room in `by_name`.
    others: Option<Box<Totals>>,
}

impl Retired {
    /// Removes and returns the counters of a tenant that is created again.
    fn take(&mut self, name: &str) -> Option<Box<Totals>> {
        self.by_name.remove(name)
    }

    /// Keeps the counters of a tenant that is removed.
    fn put(&mut self, name: &str, totals: Totals) {
        if self.by_name.len() < RETIRED_MAX {
            self.by_name.insert(name.into(), Box::new(totals));
        } else {
            self.others.get_or_insert_default().join(&totals);
        }
    }
}

/// Returns the settings of the tenant of a name.
pub type SettingsOf = Arc<dyn Fn(&str) -> TenantSettings + Send + Sync>;

impl Tenants {
    /// Creates an empty table of at most `most` tenants. `workers`: number of threads that have counters.
    pub fn new(
        workers: usize,
        most: usize,
        settings_of: SettingsOf,
        random: Random,
        shards: Arc<Shards>,
        cluster: Option<(Arc<Cluster>, Arc<Replicated>)>,
    ) -> Self {
        Self {
            shards,
            cluster,
            settings_of: RwLock::new(settings_of),
            by_name: RwLock::default(),
            workers,
            most: AtomicUsize::new(most),
            numbers: AtomicU64::new(0),
            random,
            retired: Mutex::default(),
            message_tracing: OnceLock::new(),
        }
    }

    /// Returns the tenant of this name. If it does not exist, creates it and calls `begun`. Returns `None` if
    /// there are too many tenants.
    pub fn get_or_create(
        &self,
        name: &str,
        begun: impl FnOnce(&Arc<Tenant>),
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
        let tenant = self.insert(&mut by_name, name);
        begun(&tenant);
        Some(tenant)
    }

    /// Returns the tenant of this name, of which something is in the store or in a configuration. Creates it
    /// if it does not exist, however many tenants there are.
    pub fn recover(&self, name: &str) -> Arc<Tenant> {
        let mut by_name = self.by_name.write();
        match by_name.get(name) {
            Some(tenant) => Arc::clone(tenant),
            None => self.insert(&mut by_name, name),
        }
    }

    fn insert(&self, by_name: &mut HashMap<Box<str>, Arc<Tenant>>, name: &str) -> Arc<Tenant> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let before = self.retired.lock().take(name);
        let settings = (self.settings_of.read())(name);
        let (shards, counting) = (Arc::clone(&self.shards), (self.workers, self.random));
        let cluster = self.cluster.as_ref();
        let replicated = cluster.map(|(_, replicated)| replicated);
        let elsewhere = cluster.map(|(cluster, _)| cluster.elsewhere(name)).unwrap_or_default();
        let account = Account::new(
            (number, name),
            settings,
            shards,
            counting,
            before,
            (replicated, elsewhere),
        );
        let tenant = Arc::new(Tenant::new(account, cluster.map(|(cluster, _)| cluster)));
        self.shards.name_tenant(tenant.stored_number(), name);
        if let Some(tracing) = self.message_tracing.get() {
            tenant.account.traced.follow_everybody(tracing.tracer_of(name));
        }
        by_name.insert(name.into(), Arc::clone(&tenant));
        tenant
    }

    /// Sets the tracer of messages for the tenants that exist and for those to come. Only the first call has an effect.
    pub fn trace_messages(&self, tracing: Arc<dyn MessageTracing>) {
        // While it is locked, no tenant is created.
        let by_name = self.by_name.read();
        let tracing = self.message_tracing.get_or_init(|| tracing);
        for (name, tenant) in &*by_name {
            tenant.account.traced.follow_everybody(tracing.tracer_of(name));
        }
    }

    /// Returns the tenant of this name, if it exists.
    pub fn get(&self, name: &str) -> Option<Arc<Tenant>> {
        self.by_name.read().get(name).cloned()
    }

    /// Number of tenants.
    pub fn count(&self) -> usize {
        self.by_name.read().len()
    }

    /// Maximum number of tenants.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Returns the settings that a tenant of this name has, or would have if it existed.
    pub fn settings_of(&self, name: &str) -> TenantSettings {
        (self.settings_of.read())(name)
    }

    /// Returns all tenants, ordered by name.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.by_name.read().values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Calls `visit` for each tenant, while none is created or removed.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Tenant>)) {
        self.by_name.read().values().for_each(visit);
    }

    /// Removes unused tenants. The lock is held during the check, and nobody gets a new reference to a tenant
    /// without it. Does nothing while a shard is closed, because what that shard contains of the tenants is
    /// not known.
    pub(crate) fn remove_unused(&self, now: MonoTime, wall: WallTime) {
        if self.shards.iter().any(|shard| !shard.is_open()) {
            return;
        }
        self.by_name.write().retain(|name, tenant| {
            let is_kept = **name == *DEFAULT_TENANT || !Tenant::is_unused(tenant, now, wall);
            if !is_kept {
                self.retired.lock().put(name, tenant.totals());
            }
            is_kept
        });
    }

    /// Returns all tenants, ordered by name, and the counters of removed tenants: first those kept by name,
    /// then, as [`OTHERS`], the sum of the others. No tenant is missing or counted twice.
    pub fn counted(&self) -> (Vec<Arc<Tenant>>, Vec<(String, Totals)>) {
        // Tenants are created and removed under this lock.
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

    /// Gives the tenant of this name, if it exists, the settings that it has now. Returns the tenant, and whether
    /// its connections must be woken.
    pub(crate) fn refresh(&self, now: MonoTime, name: &str) -> Option<(Arc<Tenant>, bool)> {
        // Under this lock, nobody else gives the tenant settings that are older.
        let by_name = self.by_name.write();
        let tenant = by_name.get(name)?;
        let wakes = tenant.set(now, (self.settings_of.read())(name));
        Some((Arc::clone(tenant), wakes))
    }

    /// Sets the maximum number of tenants, and new settings for all tenants. Returns the tenants whose connections
    /// must be woken.
    pub fn set(&self, now: MonoTime, most: usize, settings_of: SettingsOf) -> Vec<Arc<Tenant>> {
        self.most.store(most, Ordering::Relaxed);
        let mut changed = Vec::new();
        // Under this lock, no tenant is created with the old settings and misses the new ones.
        let by_name = self.by_name.write();
        for tenant in by_name.values() {
            if tenant.set(now, settings_of(&tenant.name)) {
                changed.push(Arc::clone(tenant));
            }
        }
        *self.settings_of.write() = settings_of;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::Storage;
    use crate::limits::Limits;
    use crate::random::tests::COUNTING;
    use barid_store::memory::MemoryStore;

    fn settings(max_qos: u8) -> SettingsOf {
        Arc::new(move |_| TenantSettings {
            limits: Arc::new(Limits { max_qos, ..Limits::default() }),
            ..TenantSettings::default()
        })
    }

    #[test]
    fn tenants_are_made_once_and_bounded() {
        let store: Arc<dyn barid_store::Store> = Arc::new(MemoryStore::new(0));
        let shards = Shards::new(Storage::local(&[store]), 0);
        let tenants = Tenants::new(1, 2, settings(2), COUNTING, Arc::new(shards), None);
        let mut made = 0;
        let mut get = |name| tenants.get_or_create(name, |_| made += 1);
        let a = get("a").unwrap();
        assert!(Arc::ptr_eq(&a, &get("a").unwrap()));
        get("b").unwrap();
        assert!(get("c").is_none());
        assert_eq!(made, 2);
        tenants.set(MonoTime::default(), 3, settings(1));
        assert_eq!(a.limits().max_qos, 1);
        let c = tenants.get_or_create("c", |_| ()).unwrap();
        assert_eq!(c.limits().max_qos, 1);
        drop(c);
        tenants.remove_unused(MonoTime::default(), WallTime::default());
        let names: Vec<_> = tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        assert_eq!(names, ["a"], "it is still referred to");
    }
}
