//! Tenants: what belongs to one and never meets another's.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use barid_core::message::Message;
use barid_core::retained::RetainedStore;
use barid_core::session::{Overflow, QueueLimits};
use barid_core::topic_index::TopicIndex;
use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::metrics::{Counters, Totals};
use crate::session::SessionRef;
use crate::sessions::Sessions;
use crate::settings::{Limits, QueueOverflow};

/// The tenant of users without one.
pub const DEFAULT_TENANT: &str = "default";

/// The longest name of a tenant, in bytes.
const NAME_MAX: usize = 64;

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
    pub retained: RwLock<RetainedStore<Arc<Message>>>,
    /// Connections that have a session.
    pub connections: AtomicUsize,
    /// How many of the retained messages are the broker's own (`$SYS`).
    pub sys_topics: AtomicUsize,
    limits: RwLock<Arc<Limits>>,
    /// One for each thread, made when the thread first has to do with the tenant.
    counters: Box<[OnceLock<Box<Counters>>]>,
}

impl Tenant {
    fn new(number: u64, name: &str, limits: Limits, workers: usize, seed: u64) -> Self {
        Self {
            number,
            name: name.into(),
            index: TopicIndex::with_seed(seed),
            sessions: Sessions::default(),
            retained: RwLock::default(),
            connections: AtomicUsize::new(0),
            sys_topics: AtomicUsize::new(0),
            limits: RwLock::new(Arc::new(limits)),
            counters: (0..workers).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Its limits, as they are now.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.read())
    }

    /// What a session's queue may hold.
    pub fn queue_limits(&self) -> QueueLimits {
        let limits = self.limits.read();
        QueueLimits {
            messages: limits.max_queued_messages,
            bytes: limits.max_queued_bytes,
            overflow: match limits.queue_overflow {
                QueueOverflow::DropNewest => Overflow::DropNewest,
                QueueOverflow::DropOldest => Overflow::DropOldest,
            },
        }
    }

    /// The counters of one thread.
    pub fn counters(&self, worker: usize) -> &Counters {
        self.counters[worker].get_or_init(Box::default)
    }

    /// Whether there is a retained message that a filter matches.
    pub fn has_retained(&self, filter: &str) -> bool {
        let mut has = false;
        self.retained.read().walk(filter, None, |_, _| {
            has = true;
            ControlFlow::Break(())
        });
        has
    }

    /// How many retained messages clients have left.
    pub fn retained_by_clients(&self) -> usize {
        let own = self.sys_topics.load(Ordering::Relaxed);
        self.retained.read().len().saturating_sub(own)
    }

    /// The sum of what all threads have counted.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in self.counters.iter().filter_map(OnceLock::get) {
            totals.add(counters);
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
}

impl Tenants {
    /// No tenants yet; `workers` threads will count, and there will be at most `most` tenants.
    pub fn new(workers: usize, most: usize, seed: u64) -> Self {
        Self {
            by_name: RwLock::default(),
            workers,
            most: AtomicUsize::new(most),
            numbers: AtomicU64::new(0),
            seed,
        }
    }

    /// The tenant of this name, made with `limits` if it is new. `None`: there are too many.
    pub fn get_or_create(
        &self,
        name: &str,
        limits: impl FnOnce() -> Limits,
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
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let tenant = Arc::new(Tenant::new(number, name, limits(), self.workers, self.seed));
        by_name.insert(name.into(), Arc::clone(&tenant));
        Some(tenant)
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

    /// Removes tenants that nobody uses: without sessions, connections or retained messages of clients.
    pub fn remove_unused(&self) {
        self.by_name.write().retain(|name, tenant| {
            // Whoever has to do with a tenant holds a reference, and gets one under this lock.
            **name == *DEFAULT_TENANT
                || Arc::strong_count(tenant) > 1
                || tenant.retained_by_clients() > 0
        });
    }

    /// New limits for all.
    pub fn set_limits(&self, most: usize, limits_of: impl Fn(&str) -> Limits) {
        self.most.store(most, Ordering::Relaxed);
        for tenant in self.by_name.read().values() {
            *tenant.limits.write() = Arc::new(limits_of(&tenant.name));
        }
    }
}

/// Splits a user name into tenant and client: `{tenant}/{client}`, or the default tenant. `None`: the
/// part before the slash cannot be a tenant.
pub fn tenant_of(user_name: Option<&str>) -> Option<&str> {
    match user_name.and_then(|name| name.split_once('/')) {
        None => Some(DEFAULT_TENANT),
        Some((tenant, _)) => is_tenant_name(tenant).then_some(tenant),
    }
}

fn is_tenant_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.chars().any(|c| c.is_control() || c.is_whitespace() || matches!(c, '+' | '#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_is_what_comes_before_the_first_slash() {
        assert_eq!(tenant_of(None), Some("default"));
        assert_eq!(tenant_of(Some("ada")), Some("default"));
        assert_eq!(tenant_of(Some("acme/ada")), Some("acme"));
        assert_eq!(tenant_of(Some("acme/ada/x")), Some("acme"));
        for bad in ["/ada", "a b/ada", "a\n/x", "+/x", "#/x"] {
            assert_eq!(tenant_of(Some(bad)), None, "{bad:?}");
        }
        assert_eq!(tenant_of(Some(&format!("{}/x", "t".repeat(65)))), None);
    }

    #[test]
    fn tenants_are_made_once_and_bounded() {
        let tenants = Tenants::new(1, 2, 0);
        let a = tenants.get_or_create("a", Limits::default).unwrap();
        assert!(Arc::ptr_eq(&a, &tenants.get_or_create("a", Limits::default).unwrap()));
        tenants.get_or_create("b", Limits::default).unwrap();
        assert!(tenants.get_or_create("c", Limits::default).is_none());
        tenants.set_limits(3, |_| Limits { max_qos: 1, ..Limits::default() });
        assert_eq!(a.limits().max_qos, 1);
        assert!(tenants.get_or_create("c", Limits::default).is_some());
        tenants.remove_unused();
        let names: Vec<_> = tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        assert_eq!(names, ["a"], "it is still referred to");
    }
}
