//! The router of a thread: looks up the targets of topics, caches them, and delivers messages to sessions.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::holder::Holder;
use barid_core::queue::Room;
use barid_core::topic_index::{SharedGroup, Strategy};
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use mqtt_proto::{QoS, topic};

use crate::budget::Budget;
use crate::cluster::{Origin, RemoteSubscriber, Sent};
use crate::faults::interleave;
use crate::limits::{Quota, ShareStrategy};
use crate::offer::{Offer, Writes};
use crate::random::Random;
use crate::run::Messages;
use crate::session::{Offered, SessionRef, Subscription};
use crate::targets::{Refusal, Targets, load};
use crate::tenant::Tenant;
use crate::worker::Worker;

/// Maximum sum of the [`weight`]s of the targets that one thread caches: about 50 MB. When the sum exceeds
/// it, the cache is cleared.
const CACHE_WEIGHT_MAX: usize = 1_000_000;

/// Routes messages for one thread.
pub struct Router {
    hasher: SeedableRandomState,
    cache: HashTable<Cached>,
    /// The sum of the weights of the cached targets.
    weight: usize,
    /// Sessions that were offered messages which no thread has written to their sockets yet.
    to_flush: VecDeque<SessionRef>,
    /// Sessions whose queues are full and whose publishers are to be held back.
    full: Vec<SessionRef>,
}

struct Cached {
    /// The tenant's number.
    number: u64,
    tenant: Weak<Tenant>,
    topic: Box<str>,
    targets: Arc<Targets>,
}

/// Size of a run, in bytes, below which the messages for a single subscriber are not written at once: they
/// are written together with others of the same turn of the thread.
const MERGED_BELOW: usize = 4 * 1024;

/// Number of steps of a turn that one write to a socket counts as.
const WRITE_STEPS: usize = 4;

/// Number of steps of a turn that the flush of one session counts as.
const FLUSH_STEPS: usize = 32;

/// Number of bytes of a run that count as one further step.
const STEP_BYTES: usize = 4 * 1024;

/// The publisher of messages.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'a> {
    /// Number of the session, for No Local; 0 if the publisher has no session.
    pub session: u64,
    /// The client identifier, for shared subscriptions that choose by it.
    pub client_id: &'a str,
    /// The user to whom retained messages belong, if it is one.
    pub holder: Option<&'a Arc<Holder>>,
}

/// Error: a shard that would have to store a message is closed.
#[derive(Clone, Copy, Debug)]
pub struct ShardClosed;

impl Router {
    /// Creates a router with an empty cache.
    pub fn new(random: Random) -> Self {
        Self {
            hasher: random.hasher(),
            cache: HashTable::new(),
            weight: 0,
            to_flush: VecDeque::new(),
            full: Vec::new(),
        }
    }

    /// Delivers messages to the sessions, shared subscriptions and other brokers among the targets of their topic.
    /// `alone`: nothing else is published before the next [`Router::flush`], so messages are written to sockets at
    /// once. When the budget of the turn is spent, the remaining messages are written with the flush.
    pub fn deliver(
        &mut self,
        worker: &Worker,
        tenant: &Tenant,
        publisher: Publisher<'_>,
        targets: &Targets,
        messages: &mut Messages<'_>,
        (alone, budget): (bool, &mut Budget),
    ) {
        self.deliver_to_sessions(worker, publisher, targets, messages, (alone, budget));
        let here = targets.route().groups();
        let user = publisher.holder.map_or("", |holder| holder.name());
        let sources = tenant.shards.sources();
        let origin = Origin { worker, publisher: publisher.client_id, user, sources };
        let remote = tenant.remote.as_ref();
        if let Some(remote) = remote.filter(|_| messages.stamp().is_some()) {
            remote.send_retained(origin, targets.remote(), messages);
        }
        let Some((remote, route)) = remote.zip(targets.remote()) else {
            return self.deliver_to_groups(worker, tenant, publisher, here, messages, budget);
        };
        // A shared subscription is served here if a member is connected here, or if no other broker has members.
        let is_served_here = |local: &Arc<SharedGroup<SessionRef>>| {
            local.members().iter().any(|member| member.subscriber.is_online())
                || !remote.has_group(route.groups(), |group| is_same(local, group))
        };
        let served: Vec<_> = here.iter().filter(|local| is_served_here(local)).cloned().collect();
        self.deliver_to_groups(worker, tenant, publisher, &served, messages, budget);
        let is_served = |group: &SharedGroup<RemoteSubscriber>| {
            served.iter().any(|local| is_same(local, group))
        };
        let Sent { lost, unserved } = remote.send(origin, route, messages, is_served);
        for _ in 0..lost {
            let (topic, client) = (messages.topic(), publisher.client_id);
            tenant.dropped(worker, DropReason::LinkFull, Some(topic), client);
        }
        for (group, first) in unserved {
            if let Some(here) = here.iter().find(|local| is_same(local, &group)) {
                let from = (&mut *messages, first);
                self.publish_shared(worker, tenant, here, publisher, from, Writes::WithFlush);
            }
        }
    }

    /// Delivers messages of another broker: to the sessions among the targets, or only to one member of the shared
    /// subscription of this name, `$share/…`.
    pub(crate) fn deliver_here(
        &mut self,
        worker: &Worker,
        tenant: &Tenant,
        (publisher, shared): (Publisher<'_>, Option<&str>),
        targets: &Targets,
        messages: &mut Messages<'_>,
        budget: &mut Budget,
    ) {
        let Some(shared) = shared else {
            return self.deliver_to_sessions(worker, publisher, targets, messages, (false, budget));
        };
        let groups = targets.route().groups();
        match groups.iter().position(|group| share_name(group) == shared) {
            Some(at) => {
                let group = &groups[at..=at];
                self.deliver_to_groups(worker, tenant, publisher, group, messages, budget);
            }
            // Its last member has gone, and the other broker has not heard of it yet.
            None => (0..messages.len())
                .for_each(|index| give_elsewhere(worker, tenant, shared, messages, index)),
        }
    }

    fn deliver_to_sessions(
        &mut self,
        worker: &Worker,
        publisher: Publisher<'_>,
        targets: &Targets,
        messages: &mut Messages<'_>,
        (alone, budget): (bool, &mut Budget),
    ) {
        let route = targets.route();
        let frame_bytes = messages.frame_bytes();
        // A single subscriber may soon get more messages, from other publishers, so small messages wait for
        // these.
        let at_once = alone && (route.recipients().len() > 1 || frame_bytes >= MERGED_BELOW);
        let writes = if at_once { Writes::AtOnce } else { Writes::Together };
        let steps = if at_once { WRITE_STEPS } else { 1 } + frame_bytes / STEP_BYTES;
        let order = messages.are_once().then(|| targets.stored_order());
        for place in 0..route.recipients().len() {
            let place = order.map_or(place, |order| order[place] as usize);
            let recipient = &route.recipients()[place];
            interleave();
            let writes = if budget.spend(steps) { Writes::WithFlush } else { writes };
            if messages.were_lost() && recipient.subscriber.durable().is_none() {
                continue;
            }
            if recipient.subscriber.id == publisher.session {
                if recipient.no_local {
                    continue;
                }
                if recipient.partly_no_local {
                    self.publish_to(worker, &recipient.subscriber, messages, |own| !own.no_local);
                    continue;
                }
            }
            let offer = Offer {
                range: 0..messages.len(),
                qos: messages.qos().min(recipient.qos),
                retain: messages.retain() && recipient.retain_as_published,
                identifiers: recipient.identifiers.as_slice(),
                shared: None,
                writes,
            };
            if recipient.subscriber.offer(worker, messages, &offer) == Offered::FlushLater {
                self.to_flush.push_back(recipient.subscriber.clone());
            }
            self.note_overflow(messages, &recipient.subscriber);
        }
    }

    fn deliver_to_groups(
        &mut self,
        worker: &Worker,
        tenant: &Tenant,
        publisher: Publisher<'_>,
        groups: &[Arc<SharedGroup<SessionRef>>],
        messages: &mut Messages<'_>,
        budget: &mut Budget,
    ) {
        for group in groups {
            let writes =
                if budget.spend(messages.len()) { Writes::WithFlush } else { Writes::Together };
            self.publish_shared(worker, tenant, group, publisher, (messages, 0), writes);
        }
    }

    /// Whether messages of a topic go to a target whose shard is closed.
    pub(crate) fn reaches_closed(&mut self, tenant: &Arc<Tenant>, topic: &str) -> bool {
        self.targets(tenant, topic).iter().any(|target| target.reaches_closed(tenant))
    }

    /// Writes the messages that were offered and not written yet, until the budget is spent.
    pub fn flush(&mut self, worker: &Worker, budget: &mut Budget) {
        while let Some(session) = self.to_flush.pop_front() {
            session.flush(worker);
            if budget.spend(FLUSH_STEPS) {
                return;
            }
        }
    }

    /// Whether there are messages that were offered and not written yet.
    pub fn has_unflushed(&self) -> bool {
        !self.to_flush.is_empty()
    }

    /// Removes outdated targets from the cache, so that sessions that have ended are not kept in memory.
    pub fn forget_stale(&mut self) {
        let weighs = &mut self.weight;
        self.cache.retain(|cached| {
            let tenant = cached.tenant.upgrade();
            let keep =
                tenant.is_some_and(|tenant| cached.targets.are_current(&tenant, &cached.topic));
            if !keep {
                *weighs -= weight(&cached.topic, &cached.targets);
            }
            keep
        });
    }

    /// Delivers messages to one session, with the options of those of its matching subscriptions for which
    /// `count` returns true.
    pub fn publish_to(
        &mut self,
        worker: &Worker,
        session: &SessionRef,
        messages: &mut Messages<'_>,
        count: impl Fn(&Subscription) -> bool,
    ) {
        let mut granted = None;
        let mut retain = false;
        let mut identifiers = Vec::new();
        for subscription in session.state().subscriptions.iter() {
            if count(subscription) && topic::matches(&subscription.filter, messages.topic()) {
                granted = granted.max(Some(subscription.qos));
                identifiers.extend(subscription.identifier);
                retain |= messages.retain() && subscription.retain_as_published;
            }
        }
        if let Some(granted) = granted {
            let qos = messages.qos().min(granted);
            self.offer(worker, session, messages, (qos, retain, &identifiers));
        }
    }

    /// Delivers messages to one session, whether or not it has subscribed to them.
    pub fn notify(&mut self, worker: &Worker, session: &SessionRef, messages: &mut Messages<'_>) {
        let identifiers = session.state().subscriptions.identifiers_for(messages.topic());
        self.offer(worker, session, messages, (messages.qos(), false, &identifiers));
    }

    fn offer(
        &mut self,
        worker: &Worker,
        session: &SessionRef,
        messages: &mut Messages<'_>,
        (qos, retain, identifiers): (QoS, bool, &[NonZeroU32]),
    ) {
        let range = 0..messages.len();
        let offer =
            Offer { range, qos, retain, identifiers, shared: None, writes: Writes::Together };
        if session.offer(worker, messages, &offer) == Offered::FlushLater {
            self.to_flush.push_back(session.clone());
        }
        self.note_overflow(messages, session);
    }

    fn note_overflow(&mut self, messages: &mut Messages<'_>, session: &SessionRef) {
        if messages.has_overflowed() {
            self.full.push(session.clone());
        }
    }

    /// Returns the sessions that have got messages although their queues are full, since the last call. The
    /// publisher of these messages is to be held back.
    pub(crate) fn take_full(&mut self) -> Vec<SessionRef> {
        std::mem::take(&mut self.full)
    }

    /// Returns how many of the messages, from the first one on, can be published without refusing their
    /// publisher. These are all, unless a store accepts nothing new, the link to another broker is full, or a queue
    /// has reached so many times its limits as `refuses_at`. The others are counted as dropped.
    ///
    /// # Errors
    /// [`ShardClosed`] if a closed shard would have to store the messages.
    pub(crate) fn admissible(
        &mut self,
        worker: &Worker,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        messages: &Messages<'_>,
        refuses_at: Option<usize>,
    ) -> Result<usize, ShardClosed> {
        if messages.qos() == QoS::AtMostOnce {
            return Ok(messages.len());
        }
        if let Some(remote) = &tenant.remote
            && let targets = self.targets(tenant, messages.topic())
            && let Some(route) = targets.remote()
            && !remote.has_room(worker.id, route)
        {
            for _ in 0..messages.len() {
                let (topic, client) = (messages.topic(), publisher.client_id);
                tenant.dropped(worker, DropReason::LinkFull, Some(topic), client);
            }
            return Ok(0);
        }
        self.admissible_here(worker, tenant, publisher, messages, refuses_at)
    }

    /// [`Self::admissible`], as far as the targets of this broker are concerned.
    pub(crate) fn admissible_here(
        &mut self,
        worker: &Worker,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        messages: &Messages<'_>,
        refuses_at: Option<usize>,
    ) -> Result<usize, ShardClosed> {
        let is_limited = refuses_at.is_some() || tenant.shards.any_refuses();
        if messages.qos() == QoS::AtMostOnce || !is_limited {
            return Ok(messages.len());
        }
        let refuse = |client: &str, reason, admitted: usize| {
            for _ in admitted..messages.len() {
                tenant.dropped(worker, reason, Some(messages.topic()), client);
            }
            admitted
        };
        if messages.retain() && messages.class().is_stored() {
            let shard = tenant.shards.of(&tenant.name, messages.topic());
            if shard.refuses() && !shard.is_open() {
                return Err(ShardClosed);
            }
            if shard.refuses() {
                return Ok(refuse(publisher.client_id, DropReason::StoreFull, 0));
            }
        }
        let times = refuses_at.unwrap_or(1);
        let limits = tenant.queue_limits_times(times);
        let targets = self.targets(tenant, messages.topic());
        let mut least = (Room::UNBOUNDED, None);
        for target in targets.iter().filter(|target| !target.is_own(publisher.session)) {
            match target.refuses(tenant, messages) {
                Some(Refusal::ShardClosed) => return Err(ShardClosed),
                Some(Refusal::StoreFull) => {
                    return Ok(refuse(&target.client_id(), DropReason::StoreFull, 0));
                }
                None => {}
            }
            if refuses_at.is_some()
                && let Some(room) = target.room(messages.qos(), &limits, times)
                && (room.messages < least.0.messages || room.bytes < least.0.bytes)
            {
                least = (room.min(least.0), Some(target));
            }
        }
        let (mut room, fullest) = least;
        let of_tenant =
            (room.messages == limits.tenant.messages, room.bytes == limits.tenant.bytes);
        let of_user = fullest.is_some_and(|target| target.user_room(times) == room.bytes);
        let admitted = messages.sizes().take_while(|size| room.take(*size)).count();
        if admitted == messages.len() {
            return Ok(admitted);
        }
        let client = fullest.map_or_else(Box::default, |target| target.client_id());
        let quota = match (room.messages == 0, of_tenant) {
            (true, (true, _)) => Quota::MaxTenantQueuedMessages,
            (true, (false, _)) => Quota::MaxQueuedMessages,
            (false, (_, true)) => Quota::MaxTenantQueuedBytes,
            (false, (_, false)) if of_user => Quota::MaxUserQueuedBytes,
            (false, (_, false)) => Quota::MaxQueuedBytes,
        };
        for _ in admitted..messages.len() {
            tenant.refused(worker, quota, publisher.client_id);
        }
        Ok(refuse(&client, DropReason::QueueRefuses, admitted))
    }

    /// Whether messages of this QoS to a topic would have to wait in a queue that is full.
    pub(crate) fn is_any_full(&mut self, tenant: &Arc<Tenant>, topic: &str, qos: QoS) -> bool {
        let limits = tenant.queue_limits();
        let targets = self.targets(tenant, topic);
        let mut rooms = targets.iter().filter_map(|target| target.room(qos, &limits, 1));
        rooms.any(|room| !room.is_some())
    }

    /// Gives each of the messages, from the one with the number `first` on, to a member of a shared subscription.
    fn publish_shared(
        &mut self,
        worker: &Worker,
        tenant: &Tenant,
        group: &SharedGroup<SessionRef>,
        publisher: Publisher<'_>,
        (messages, first): (&mut Messages<'_>, usize),
        writes: Writes,
    ) {
        let name: Arc<str> = share_name(group).into();
        let (strategy, hash) = strategy(tenant.share_strategy(), publisher, messages.topic());
        for index in first..messages.len() {
            let mut is_taken = false;
            // A member whose client goes away at this moment is not chosen again: by then it is offline or
            // has left the group.
            while let Some(member) = group.pick(strategy, hash, load) {
                let offer = Offer {
                    range: index..index + 1,
                    qos: messages.qos().min(member.options.qos),
                    retain: messages.retain() && member.options.retain_as_published,
                    identifiers: member.options.identifier.as_slice(),
                    shared: Some(&name),
                    writes,
                };
                let offered = member.subscriber.offer(worker, messages, &offer);
                self.note_overflow(messages, &member.subscriber);
                match offered {
                    Offered::Gone if group.members().len() > 1 => {}
                    Offered::FlushLater => {
                        self.to_flush.push_back(member.subscriber);
                        is_taken = true;
                        break;
                    }
                    Offered::Done => {
                        is_taken = true;
                        break;
                    }
                    Offered::Gone => break,
                }
            }
            if !is_taken {
                give_elsewhere(worker, tenant, &name, messages, index);
            }
        }
    }

    /// Returns the targets of a topic.
    pub fn targets(&mut self, tenant: &Arc<Tenant>, topic: &str) -> Arc<Targets> {
        let hash = self.hasher.hash_one((tenant.number, topic));
        let found = self
            .cache
            .find_mut(hash, |cached| cached.number == tenant.number && *cached.topic == *topic);
        if let Some(cached) = found {
            if !cached.targets.are_current(tenant, topic) {
                let targets = Arc::new(Targets::of(tenant, topic));
                self.weight -= weight(topic, &cached.targets);
                self.weight += weight(topic, &targets);
                cached.targets = targets;
            }
            return Arc::clone(&cached.targets);
        }
        let targets = Arc::new(Targets::of(tenant, topic));
        self.weight += weight(topic, &targets);
        if self.weight > CACHE_WEIGHT_MAX {
            self.cache.clear();
            self.weight = weight(topic, &targets);
        }
        let cached = Cached {
            number: tenant.number,
            tenant: Arc::downgrade(tenant),
            topic: topic.into(),
            targets: Arc::clone(&targets),
        };
        let hasher = &self.hasher;
        self.cache
            .insert_unique(hash, cached, |cached| hasher.hash_one((cached.number, &*cached.topic)));
        targets
    }
}

/// Gives a message of a shared subscription that has no member here any more to another broker, if that has members.
fn give_elsewhere(
    worker: &Worker,
    tenant: &Tenant,
    shared: &str,
    messages: &mut Messages<'_>,
    index: usize,
) {
    if let Some(remote) = &tenant.remote {
        remote.give((worker, tenant.shards.sources()), shared, messages, index);
    }
}

/// Whether both are the members of the same shared subscription, on this broker and on others.
fn is_same(here: &SharedGroup<SessionRef>, elsewhere: &SharedGroup<RemoteSubscriber>) -> bool {
    (here.name(), here.filter()) == (elsewhere.name(), elsewhere.filter())
}

/// Returns the strategy by which a shared subscription chooses a member, and the hash that it uses.
fn strategy(of: ShareStrategy, publisher: Publisher<'_>, topic: &str) -> (Strategy, u64) {
    // The hash has a fixed seed: the choice must be the same on all threads.
    let hash = |text: &str| foldhash::fast::FixedState::default().hash_one(text);
    match of {
        ShareStrategy::RoundRobin => (Strategy::RoundRobin, 0),
        ShareStrategy::LeastInFlight => (Strategy::LeastInFlight, 0),
        ShareStrategy::HashClient => (Strategy::Hash, hash(publisher.client_id)),
        ShareStrategy::HashTopic => (Strategy::Hash, hash(topic)),
    }
}

/// Cost of caching the targets of a topic, in units of about 50 bytes: the targets, the topic, and the entry
/// itself.
fn weight(topic: &str, targets: &Targets) -> usize {
    targets.weight() + topic.len() / 48 + 4
}

/// Returns the filter of a shared subscription as clients write it.
pub(crate) fn share_name(group: &SharedGroup<SessionRef>) -> String {
    format!("$share/{}/{}", group.name(), group.filter())
}
