//! The part of a tenant that its sessions refer to: identity, limits and counters.

use std::fmt;
use std::sync::{Arc, OnceLock};

use barid_core::drop_reason::DropReason;
use barid_core::ids::TenantNumber;
use barid_core::queue::{Overflow, QueueLimits, Room};

use crate::drops::DropLog;
use crate::durability::Durability;
use crate::durable::{Durable, Shards};
use crate::limits::{Limits, QueueOverflow, ShareStrategy};
use crate::metrics::{Counters, Totals};
use crate::queued::Queued;
use crate::random::Random;
use crate::retained::Retained;
use crate::sync::RwLock;
use crate::worker::Worker;

/// The part of a tenant that its sessions refer to.
pub struct Account {
    /// The number of the tenant, unique during the life of the process.
    pub number: u64,
    /// The name of the tenant.
    pub name: Box<str>,
    /// The retained messages.
    pub retained: RwLock<Retained>,
    /// Messages and bytes in the queues of all sessions of the tenant.
    pub queued: Queued,
    /// The shards of the data directory.
    pub shards: Arc<Shards>,
    /// The source of random numbers.
    pub random: Random,
    settings: RwLock<TenantSettings>,
    /// The counts of an earlier tenant of the same name that was removed.
    before: Option<Box<Totals>>,
    /// The counters and drops of each thread, created when the thread first uses the tenant.
    counters: Box<[OnceLock<Box<ThreadLocal>>]>,
}

/// The settings of a tenant that a reload can change.
#[derive(Clone, Debug, Default)]
pub struct TenantSettings {
    /// The limits.
    pub limits: Arc<Limits>,
    /// The durability classes.
    pub durability: Arc<Durability>,
    /// How shared subscriptions choose a member.
    pub share_strategy: ShareStrategy,
}

/// The counters and drops of one thread for a tenant.
#[derive(Debug, Default)]
struct ThreadLocal {
    counters: Counters,
    drops: DropLog,
}

impl Account {
    /// Creates the account of a tenant for `workers` threads. `before` contains the counts of an earlier
    /// tenant of the same name.
    pub fn new(
        (number, name): (u64, &str),
        settings: TenantSettings,
        shards: Arc<Shards>,
        (workers, random): (usize, Random),
        before: Option<Box<Totals>>,
    ) -> Self {
        Self {
            number,
            name: name.into(),
            retained: RwLock::new(Retained::with_seed(random.number())),
            queued: Queued::default(),
            shards,
            random,
            settings: RwLock::new(settings),
            before,
            counters: (0..workers).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The number of the tenant in records to be stored.
    pub(crate) fn stored_number(&self) -> TenantNumber {
        TenantNumber(u32::try_from(self.number).expect("numbers are given one after another"))
    }

    /// Returns the shard and the new session number under which a new session of a client is stored.
    pub(crate) fn new_durable(&self, client_id: &str) -> Durable {
        let shard = self.shards.of(&self.name, client_id);
        let number = shard.change().new_session_number();
        Durable { shard, tenant: self.stored_number(), number }
    }

    /// The current limits.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.settings.read().limits)
    }

    /// The current durability classes.
    pub fn durability(&self) -> Arc<Durability> {
        Arc::clone(&self.settings.read().durability)
    }

    /// The current strategy of shared subscriptions.
    pub fn share_strategy(&self) -> ShareStrategy {
        self.settings.read().share_strategy
    }

    /// Replaces the settings.
    pub fn set(&self, settings: TenantSettings) {
        *self.settings.write() = settings;
    }

    /// The limits of a session's queue, with the room that the tenant has left.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
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

    /// Counts a dropped message, and remembers it in the drop log of the thread.
    pub fn dropped(&self, worker: &Worker, reason: DropReason, topic: Option<&str>, client: &str) {
        let own = self.of_thread(worker.id);
        own.counters.dropped(reason);
        own.drops.push(worker.now, topic, client, reason);
    }

    /// The drop logs of all threads.
    pub fn drop_logs(&self) -> impl Iterator<Item = &DropLog> {
        self.counters.iter().filter_map(OnceLock::get).map(|own| &own.drops)
    }

    fn of_thread(&self, worker: usize) -> &ThreadLocal {
        self.counters[worker].get_or_init(Box::default)
    }

    /// Number of retained messages, without those of the broker (`$SYS`).
    pub fn retained_by_clients(&self) -> usize {
        self.retained.read().count()
    }

    /// Sum of the counters of all threads since the start of the broker. Includes the counts of removed
    /// tenants of the same name.
    pub fn counted(&self) -> Totals {
        let mut totals = self.before.as_deref().cloned().unwrap_or_default();
        for own in self.counters.iter().filter_map(OnceLock::get) {
            totals.add(&own.counters);
        }
        totals
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}
