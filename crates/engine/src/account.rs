//! What of a tenant its sessions need: who it is, what it may have, and what is counted for it.

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

/// What of a tenant its sessions need.
pub struct Account {
    /// Unique in the life of the broker.
    pub number: u64,
    /// The name.
    pub name: Box<str>,
    /// The retained messages.
    pub retained: RwLock<Retained>,
    /// Messages and bytes in the queues of all its sessions.
    pub queued: Queued,
    /// Where its durable things are.
    pub shards: Arc<Shards>,
    /// The source of random numbers.
    pub random: Random,
    settings: RwLock<TenantSettings>,
    /// Counters of an earlier tenant of this name, which was removed.
    before: Option<Box<Totals>>,
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

impl Account {
    /// Of a tenant for which so many threads will count, and for one of whose name so much was counted `before`.
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

    /// The number that stands for its name in what is to be stored.
    pub fn stored_number(&self) -> TenantNumber {
        TenantNumber(u32::try_from(self.number).expect("numbers are given one after another"))
    }

    /// Shard and number under which a new session of a client is stored.
    pub fn new_durable(&self, client_id: &str) -> Durable {
        let shard = self.shards.of(&self.name, client_id);
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

    /// New settings.
    pub fn set(&self, settings: TenantSettings) {
        *self.settings.write() = settings;
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
        self.retained.read().count()
    }

    /// The sum of what all threads have counted since the start of the broker, also while there was no tenant of
    /// this name.
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
