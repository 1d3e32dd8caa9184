//! Tenants: what belongs to one and never meets another's.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use barid_core::time::WallTime;
use barid_core::topic_index::{SubscribeOptions, TopicIndex};
use hashbrown::HashMap;
use mqtt_proto::topic;

use crate::account::{Account, TenantSettings};
use crate::amqp_clients::AmqpClients;
use crate::bindings::Bindings;
use crate::denials::DenialLog;
use crate::durable::Shards;
use crate::entities::{Alarm, Entities};
use crate::metrics::Totals;
use crate::names::{DEFAULT_TENANT, OTHERS};
use crate::random::Random;
use crate::session::{SessionRef, Subscription};
use crate::sessions::Sessions;
use crate::state_store::StateStore;
use crate::sync::{Mutex, RwLock};

/// Tenants that were removed whose counters are kept by name: 2 MiB. Only where anybody may connect can there be
/// more, since users and keys name their tenants.
const RETIRED_MAX: usize = 1_000;

/// One tenant: its [`Account`], and what is made of sessions.
pub struct Tenant {
    /// What its sessions refer to.
    pub account: Arc<Account>,
    /// Who has subscribed to what.
    pub index: TopicIndex<SessionRef>,
    /// The sessions, by client identifier.
    pub sessions: Sessions,
    /// Connections that have a session.
    pub connections: AtomicUsize,
    /// What joins its MQTT clients to its entities.
    pub bindings: Bindings,
    /// Its AMQP connections.
    pub amqp_clients: Arc<AmqpClients>,
    /// What its clients were not allowed to do lately.
    pub denials: DenialLog,
    /// The state store, made when it is first needed.
    state: OnceLock<Box<StateStore>>,
    /// Queues, topics and subscriptions, made when they are first needed.
    entities: OnceLock<Arc<Entities>>,
}

impl Tenant {
    fn new(account: Account) -> Self {
        let random = account.random;
        Self {
            account: Arc::new(account),
            index: TopicIndex::with_seed(random.number()),
            sessions: Sessions::new(random),
            connections: AtomicUsize::new(0),
            bindings: Bindings::default(),
            amqp_clients: Arc::default(),
            denials: DenialLog::default(),
            state: OnceLock::new(),
            entities: OnceLock::new(),
        }
    }

    /// Enters one subscription of a session in the index.
    pub fn subscribe(&self, session: &SessionRef, subscription: &Subscription) {
        let options = SubscribeOptions {
            qos: subscription.qos,
            no_local: subscription.no_local,
            retain_as_published: subscription.retain_as_published,
            identifier: subscription.identifier,
        };
        let (index, filter) = (&self.index, &*subscription.filter);
        match topic::parse_shared(filter) {
            Ok(Some(shared)) => {
                index.subscribe_shared(shared.group, shared.filter, session, options)
            }
            _ => index.subscribe(filter, session, options),
        };
    }

    /// Takes one subscription of a session out of the index.
    pub fn unsubscribe(&self, filter: &str, session: u64) -> bool {
        match topic::parse_shared(filter) {
            Ok(Some(shared)) => self.index.unsubscribe_shared(shared.group, shared.filter, session),
            _ => self.index.unsubscribe(filter, session),
        }
    }

    /// The state store.
    pub fn state_store(&self) -> &StateStore {
        self.state.get_or_init(|| Box::new(StateStore::new(self.shards.count(), self.random)))
    }

    /// The state store, if anybody has ever had to do with it.
    pub fn used_state_store(&self) -> Option<&StateStore> {
        self.state.get().map(|store| &**store)
    }

    /// Whether the keys of a shard are to be looked at for expired ones at this time, and not at another.
    pub fn has_alarm(&self, shard: u16, wall: WallTime) -> bool {
        self.used_state_store().is_some_and(|store| store.partition(shard).alarm() == Some(wall))
    }

    /// Removes what is stored of the state store if nothing would be lost with that. False: something would.
    fn forget_void_state(&self, wall: WallTime) -> bool {
        let Some(store) = self.used_state_store() else { return true };
        let is_void = store.is_void(wall);
        if is_void {
            for shard in self.shards.iter() {
                shard.change().remove_state_clock(self.stored_number());
            }
        }
        is_void
    }

    /// Its queues, topics and subscriptions, which `alarm` looks at when something in them is due.
    pub fn entities(&self, alarm: &Arc<dyn Alarm>) -> &Arc<Entities> {
        self.entities.get_or_init(|| {
            let account = Arc::downgrade(&self.account);
            let most = move || account.upgrade().map_or(0, |account| account.limits().max_entities);
            let named = (self.stored_number(), &*self.name);
            Entities::new(named, &self.shards, alarm, self.random, Box::new(most))
        })
    }

    /// Its queues, topics and subscriptions, if anybody has ever had to do with them.
    pub fn used_entities(&self) -> Option<&Arc<Entities>> {
        self.entities.get()
    }

    /// The sum of what all threads have counted since the start of the broker, also while there was no tenant of
    /// this name.
    pub fn totals(&self) -> Totals {
        let mut totals = self.counted();
        totals.expired_keys += self.used_state_store().map_or(0, |store| store.usage().expired());
        totals
    }

    /// Whether nothing would be lost with it: it has no sessions, connections, retained messages of clients, entities,
    /// bindings or keys. Whoever else has to do with it holds a reference to it or to its account.
    fn is_unused(me: &Arc<Self>, wall: WallTime) -> bool {
        Arc::strong_count(me) == 1
            && Arc::strong_count(&me.account) == 1
            && me.retained_by_clients() == 0
            && me.bindings.are_void()
            && me.used_entities().is_none_or(|entities| entities.is_empty())
            && me.forget_void_state(wall)
    }
}

/// A tenant has all that its account has.
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

/// All tenants. A tenant comes into being when its first client connects.
pub struct Tenants {
    by_name: RwLock<HashMap<Box<str>, Arc<Tenant>>>,
    workers: usize,
    most: AtomicUsize,
    settings_of: RwLock<SettingsOf>,
    numbers: AtomicU64,
    random: Random,
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

/// What a tenant gets, by its name.
pub type SettingsOf = Arc<dyn Fn(&str) -> TenantSettings + Send + Sync>;

impl Tenants {
    /// No tenants yet; `workers` threads will count, and there will be at most `most` tenants.
    pub fn new(
        workers: usize,
        most: usize,
        settings_of: SettingsOf,
        random: Random,
        shards: Arc<Shards>,
    ) -> Self {
        Self {
            shards,
            settings_of: RwLock::new(settings_of),
            by_name: RwLock::default(),
            workers,
            most: AtomicUsize::new(most),
            numbers: AtomicU64::new(0),
            random,
            retired: Mutex::default(),
        }
    }

    /// The tenant of this name, made if it is not there, and `begun` then. `None`: there are too many.
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

    /// The tenant of this name that something was found of in the store or in a configuration, however many there may
    /// be.
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
        let account = Account::new((number, name), settings, shards, counting, before);
        let tenant = Arc::new(Tenant::new(account));
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

    /// Removes tenants that nobody uses. Whoever gets a reference to one gets it under this lock. What a closed shard has of
    /// them is not known.
    pub fn remove_unused(&self, wall: WallTime) {
        if self.shards.iter().any(|shard| !shard.is_open()) {
            return;
        }
        self.by_name.write().retain(|name, tenant| {
            let is_kept = **name == *DEFAULT_TENANT || !Tenant::is_unused(tenant, wall);
            if !is_kept {
                self.retired.lock().put(name, tenant.totals());
            }
            is_kept
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
    pub fn set(&self, most: usize, settings_of: SettingsOf) {
        self.most.store(most, Ordering::Relaxed);
        // No tenant begins with the old ones and misses the new ones.
        let by_name = self.by_name.write();
        for tenant in by_name.values() {
            tenant.set(settings_of(&tenant.name));
        }
        *self.settings_of.write() = settings_of;
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
        let tenants = Tenants::new(1, 2, settings(2), COUNTING, Arc::new(shards));
        let mut made = 0;
        let mut get = |name| tenants.get_or_create(name, |_| made += 1);
        let a = get("a").unwrap();
        assert!(Arc::ptr_eq(&a, &get("a").unwrap()));
        get("b").unwrap();
        assert!(get("c").is_none());
        assert_eq!(made, 2);
        tenants.set(3, settings(1));
        assert_eq!(a.limits().max_qos, 1);
        let c = tenants.get_or_create("c", |_| ()).unwrap();
        assert_eq!(c.limits().max_qos, 1);
        drop(c);
        tenants.remove_unused(WallTime::default());
        let names: Vec<_> = tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        assert_eq!(names, ["a"], "it is still referred to");
    }
}
