//! The part of a tenant that its sessions refer to: identity, limits and counters.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use barid_core::drop_reason::DropReason;
use barid_core::holder::{Held, Holder};
use barid_core::ids::{SessionNumber, TenantNumber};
use barid_core::queue::{Overflow, QueueLimits, Room};
use barid_core::time::MonoTime;
use hashbrown::HashMap;
use tracing::info;

use crate::drops::{DropLog, cut};
use crate::durability::Durability;
use crate::durable::{Commits, Durable, Shards};
use crate::limits::{Limits, QueueOverflow, Quota, ShareStrategy};
use crate::metrics::{Counters, Totals};
use crate::queued::Queued;
use crate::quotas::{Elsewhere, Pace, Pass, Quotas};
use crate::random::Random;
use crate::replicated::{OfTenant, Replicated};
use crate::retained::Retained;
use crate::sync::RwLock;
use crate::tapping::Traced;
use crate::user_limits::UserLimits;
use crate::worker::Worker;

/// Maximum length of a client identifier in the log, in bytes.
const CLIENT_MAX: usize = 96;

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
    /// The quotas of connections and rates.
    pub quotas: Quotas,
    /// The clients that are traced.
    pub traced: Traced,
    /// The shards of the data directory.
    pub shards: Arc<Shards>,
    /// The source of random numbers.
    pub random: Random,
    /// The numbers under which state stores know sessions that have come from other brokers.
    pub(crate) answered_as: AnsweredAs,
    settings: RwLock<TenantSettings>,
    /// Number of refusals because of `max_entities`. They are rare, and happen on threads that have no counters.
    refused_entities: AtomicU64,
    /// Number of refusals because of `max_tenant_entity_bytes`. They happen also on threads that have no counters.
    refused_entity_bytes: AtomicU64,
    /// The counts of an earlier tenant of the same name that was removed.
    before: Option<Box<Totals>>,
    /// The counters and drops of each thread, created when the thread first uses the tenant.
    counters: Box<[OnceLock<Box<ThreadLocal>>]>,
}

/// The numbers under which state stores know sessions, by the numbers of these sessions, if they are not the same. Only
/// few sessions ever change their broker.
#[derive(Debug, Default)]
pub(crate) struct AnsweredAs {
    has_any: AtomicBool,
    by_number: RwLock<HashMap<SessionNumber, SessionNumber>>,
}

impl AnsweredAs {
    /// Returns the number under which state stores know a session, if it is another one than its own.
    pub fn of(&self, number: SessionNumber) -> Option<SessionNumber> {
        let has_any = self.has_any.load(Ordering::Relaxed);
        if has_any { self.by_number.read().get(&number).copied() } else { None }
    }

    /// Notes the number under which state stores know a session.
    pub fn put(&self, number: SessionNumber, answered_as: SessionNumber) {
        self.by_number.write().insert(number, answered_as);
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Forgets a session, which has ended.
    pub fn remove(&self, number: SessionNumber) {
        if self.has_any.load(Ordering::Relaxed) {
            self.by_number.write().remove(&number);
        }
    }
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
    /// tenant of the same name. `replicated`: in a cluster, the objects of which all brokers have replicas. `elsewhere`: what
    /// the tenant uses at other brokers.
    pub fn new(
        (number, name): (u64, &str),
        settings: TenantSettings,
        shards: Arc<Shards>,
        (workers, random): (usize, Random),
        before: Option<Box<Totals>>,
        (replicated, elsewhere): (Option<&Arc<Replicated>>, Arc<Elsewhere>),
    ) -> Self {
        let replicas = replicated
            .map(|replicated| OfTenant { replicated: Arc::clone(replicated), tenant: name.into() });
        Self {
            number,
            name: name.into(),
            retained: RwLock::new(Retained::new(random.number(), replicas)),
            queued: Queued::default(),
            quotas: Quotas::new(&settings.limits, elsewhere),
            traced: Traced::default(),
            shards,
            random,
            answered_as: AnsweredAs::default(),
            settings: RwLock::new(settings),
            refused_entities: AtomicU64::new(0),
            refused_entity_bytes: AtomicU64::new(0),
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

    /// Returns what must be durable before a session of a client that has ended does not come back, whatever has ended it.
    pub(crate) fn removals(&self, client_id: &str) -> Commits {
        let shard = self.shards.of(&self.name, client_id);
        // What a broken disk does not take, it has not taken before either.
        if shard.refuses() {
            return Commits::default();
        }
        let last = shard.last_change();
        if shard.is_durable(last) { Commits::default() } else { Commits::one(shard.index(), last) }
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

    /// Replaces the settings. Returns whether connections must be woken.
    pub fn set(&self, now: MonoTime, settings: TenantSettings) -> bool {
        let before = self.limits();
        let after = Arc::clone(&settings.limits);
        // A connection that finds the new version of the quotas must find the new limits, too.
        *self.settings.write() = settings;
        self.quotas.set(now, &before, &after)
    }

    /// The limits of a session's queue, with the room that the tenant has left. That of the user is left open.
    pub(crate) fn queue_limits(&self) -> QueueLimits {
        self.queue_limits_times(1)
    }

    /// The limits of the queue of a session that belongs to this user, with the room that tenant and user have left.
    pub(crate) fn queue_limits_of(&self, user: Option<&Holder>) -> QueueLimits {
        let (mut limits, common) = self.queue_limits_and_common(1);
        if let Some(user) = user {
            limits.user_bytes = queue_room(user, common, 1);
        }
        limits
    }

    /// The limits of a session's queue as if they were so many times as high.
    pub(crate) fn queue_limits_times(&self, times: usize) -> QueueLimits {
        self.queue_limits_and_common(times).0
    }

    /// Returns the limits of [`Self::queue_limits_times`], and the tenant's `max_user_queued_bytes`.
    fn queue_limits_and_common(&self, times: usize) -> (QueueLimits, u64) {
        let settings = self.settings.read();
        let limits = &settings.limits;
        let left = |most: usize, used| most.saturating_mul(times).saturating_sub(used);
        let of_queue = QueueLimits {
            messages: limits.max_queued_messages.saturating_mul(times),
            bytes: limits.max_queued_bytes.saturating_mul(times),
            overflow: match limits.queue_overflow {
                QueueOverflow::DropNewest => Overflow::DropNewest,
                QueueOverflow::DropOldest => Overflow::DropOldest,
                QueueOverflow::Reject => Overflow::Reject,
                QueueOverflow::Block => Overflow::Block,
            },
            tenant: Room {
                messages: left(limits.max_tenant_queued_messages, self.queued_messages()),
                bytes: left(limits.max_tenant_queued_bytes, self.queued_bytes()),
            },
            user_bytes: usize::MAX,
        };
        (of_queue, limits.max_user_queued_bytes)
    }

    /// Number of messages that wait in the queues of the tenant's sessions at all brokers.
    pub fn queued_messages(&self) -> usize {
        self.queued.messages().saturating_add(self.quotas.elsewhere().queued_messages())
    }

    /// Bytes of these, and of messages in flight that are kept until acknowledged.
    pub fn queued_bytes(&self) -> usize {
        self.queued.bytes().saturating_add(self.quotas.elsewhere().queued_bytes())
    }

    /// Gives a user the limits that it has of its own now. The caller holds none of the tenant's locks.
    pub fn set_own(&self, user: &Arc<Holder>, own: &UserLimits) {
        if user.set_own(&own.of_held()) {
            // Publishers may wait for room that the user has now.
            self.queued.look_for_room(Some(user));
        }
    }

    /// Returns how many bytes more fit into all queues of a user together, if its limit were so many times as high.
    pub(crate) fn queue_room_of(&self, user: &Holder, times: usize) -> usize {
        let common = self.settings.read().limits.max_user_queued_bytes;
        queue_room(user, common, times)
    }

    /// The counters of one thread.
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.of_thread(worker).counters
    }

    /// Counts a dropped message, and remembers it in the drop log of the thread.
    pub fn dropped(&self, worker: &Worker, reason: DropReason, topic: Option<&str>, client: &str) {
        let own = self.of_thread(worker.id);
        own.counters.dropped(reason, 1);
        own.drops.push(worker.now, topic, client, reason);
        if let Some(quota) = self.quota_of(reason) {
            self.refused(worker, quota, client);
        }
    }

    /// The quota because of which messages are dropped for this reason.
    fn quota_of(&self, reason: DropReason) -> Option<Quota> {
        Some(match reason {
            DropReason::QueueMessages => Quota::MaxQueuedMessages,
            DropReason::QueueBytes => Quota::MaxQueuedBytes,
            DropReason::RetainedMessages => Quota::MaxRetainedMessages,
            DropReason::RetainedBytes => Quota::MaxRetainedBytes,
            DropReason::UserQueue => Quota::MaxUserQueuedBytes,
            DropReason::UserRetainedMessages => Quota::MaxUserRetainedMessages,
            DropReason::UserRetainedBytes => Quota::MaxUserRetainedBytes,
            DropReason::TenantQueue => {
                let most = self.limits().max_tenant_queued_messages;
                if self.queued_messages() >= most {
                    Quota::MaxTenantQueuedMessages
                } else {
                    Quota::MaxTenantQueuedBytes
                }
            }
            _ => return None,
        })
    }

    /// Counts that a quota has refused something to a client, and logs it now and then.
    pub fn refused(&self, worker: &Worker, quota: Quota, client: &str) {
        // A user may have another limit than that of the tenant for every user.
        let limit = quota.limit(&self.limits()).filter(|_| !quota.is_of_held());
        self.count_refusal(worker, quota, limit, client);
    }

    /// Counts that a quota has refused something to a client, whose user has limits of its `own`, and logs it now
    /// and then.
    pub fn refused_to(&self, worker: &Worker, quota: Quota, own: &UserLimits, client: &str) {
        self.count_refusal(worker, quota, own.limit(quota, &self.limits()), client);
    }

    fn count_refusal(&self, worker: &Worker, quota: Quota, limit: Option<u64>, client: &str) {
        self.counters(worker.id).refused(quota, 1);
        if self.quotas.tells(worker.now, quota) {
            let tenant = &*self.name;
            let client = &*cut(client, CLIENT_MAX);
            info!(
                tenant,
                quota = quota.name(),
                limit,
                client,
                "a quota is reached, and what exceeds it is refused; see barid_quota_refused_total"
            );
        }
    }

    /// Checks whether the tenant may have so many entities.
    ///
    /// # Errors
    /// It may not, which is counted; the number that it may have.
    pub fn admits_entities(&self, count: usize) -> Result<(), usize> {
        let most = self.limits().max_entities;
        if count <= most {
            return Ok(());
        }
        self.refused_entities.fetch_add(1, Ordering::Relaxed);
        Err(most)
    }

    /// Whether the entities of the tenant may hold so many bytes. A refusal is counted.
    pub fn admits_entity_bytes(&self, bytes: usize) -> bool {
        let admits = bytes <= self.limits().max_tenant_entity_bytes;
        if !admits {
            self.refused_entity_bytes.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    /// Asks for at most `most` tokens for a client. Returns how many may be used now, or `None` if the
    /// connection has to wait, which is counted, and logged now and then.
    pub fn pass(&self, worker: &Worker, pace: &mut Pace, most: u64, client: &str) -> Option<u64> {
        let pass = pace.ask(worker.now, most);
        if let Some((quota, waited)) = pace.take_ended() {
            self.counters(worker.id).throttled(quota, waited);
        }
        match pass {
            Pass::Go(tokens) => Some(tokens),
            Pass::Waits => None,
            Pass::Begins(quota) => {
                if self.quotas.tells(worker.now, quota) {
                    let (tenant, limit) = (&*self.name, pace.limit(quota));
                    let client = &*cut(client, CLIENT_MAX);
                    info!(
                        tenant,
                        quota = quota.name(),
                        limit,
                        client,
                        "a quota is reached, and clients are slowed down; see \
                         barid_quota_throttled_seconds_total"
                    );
                }
                None
            }
        }
    }

    /// Ends the wait of a connection whose quotas have changed. It is counted as one that is over.
    pub(crate) fn cut_short(&self, worker: &Worker, pace: &mut Pace) {
        if let Some((quota, waited)) = pace.cut_short(worker.now) {
            self.counters(worker.id).throttled(quota, waited);
        }
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
        totals.refused[Quota::MaxEntities] += self.refused_entities.load(Ordering::Relaxed);
        totals.refused[Quota::MaxTenantEntityBytes] +=
            self.refused_entity_bytes.load(Ordering::Relaxed);
        totals
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns how many bytes more fit into all queues of a user together, where `common` is the limit for every user, if the
/// limit were so many times as high.
fn queue_room(user: &Holder, common: u64, times: usize) -> usize {
    let room = match user.limit(Held::QueuedBytes, common).saturating_mul(times as u64) {
        0 => u64::MAX,
        most => most.saturating_sub(user.held(Held::QueuedBytes)),
    };
    usize::try_from(room).unwrap_or(usize::MAX)
}
