//! From a message to those who get it.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::queue::Room;
use barid_core::topic_index::{Load, Route, SharedGroup, Strategy};
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use mqtt_proto::{QoS, topic};

use crate::budget::Budget;
use crate::durable::DurableShard;
use crate::faults::{Rule, holds, interleave};
use crate::limits::ShareStrategy;
use crate::offer::{Offer, Writes};
use crate::random::Random;
use crate::run::Messages;
use crate::session::{Offered, SessionRef, Subscription};
use crate::tenant::Tenant;
use crate::worker::Worker;

/// What the routes that one thread remembers may weigh together; see [`weight`].
const CACHE_WEIGHT_MAX: usize = 1_000_000;

/// Routes messages for one thread.
pub struct Router {
    hasher: SeedableRandomState,
    cache: HashTable<Cached>,
    /// What the routes in the cache weigh.
    weight: usize,
    /// Sessions that have been offered messages and whose socket nobody has written to yet.
    to_flush: VecDeque<SessionRef>,
    /// Sessions whose queues are full and whose publishers are to be held back.
    full: Vec<SessionRef>,
}

struct Cached {
    /// The tenant's number.
    number: u64,
    tenant: Weak<Tenant>,
    topic: Box<str>,
    route: Arc<Route<SessionRef>>,
    /// The places of its targets in [order](Router::stored_order), if that was asked for.
    order: Option<Arc<[u32]>>,
}

/// Messages for a single subscriber that are smaller than this together wait for others of the same turn
/// of the thread, to be written together.
const MERGED_BELOW: usize = 4 * 1024;

/// Steps of a turn that a write to a socket takes …
const WRITE_STEPS: usize = 4;

/// … and all that waits for a client …
const FLUSH_STEPS: usize = 32;

/// … and how many bytes are a step of their own.
const STEP_BYTES: usize = 4 * 1024;

/// Who published.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'a> {
    /// The session, for No Local; 0 if it is none.
    pub session: u64,
    /// The client identifier, for shared subscriptions that choose by it.
    pub client_id: &'a str,
}

/// A shard is closed that would have to store something.
#[derive(Clone, Copy, Debug)]
pub struct ShardClosed;

impl Router {
    /// A router that remembers no routes yet.
    pub fn new(random: Random) -> Self {
        Self {
            hasher: random.hasher(),
            cache: HashTable::new(),
            weight: 0,
            to_flush: VecDeque::new(),
            full: Vec::new(),
        }
    }

    /// Delivers messages to all who have subscribed, and says who that is. `alone`: nothing else is
    /// published before the next [`Router::flush`], so sockets are written to at once. When the budget of the turn
    /// is spent, what is left is written with the flush.
    pub fn publish(
        &mut self,
        worker: &Worker,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        messages: &mut Messages<'_>,
        alone: bool,
        budget: &mut Budget,
    ) -> Arc<Route<SessionRef>> {
        let route = self.route(tenant, messages.topic());
        let frame_bytes = messages.frame_bytes();
        // Small messages for one subscriber may be followed by others' for the same one.
        let at_once = alone && (route.targets().len() > 1 || frame_bytes >= MERGED_BELOW);
        let writes = if at_once { Writes::AtOnce } else { Writes::Together };
        let steps = if at_once { WRITE_STEPS } else { 1 } + frame_bytes / STEP_BYTES;
        let order =
            messages.are_once().then(|| self.stored_order(tenant, messages.topic(), &route));
        for place in 0..route.targets().len() {
            let place = order.as_ref().map_or(place, |order| order[place] as usize);
            let target = &route.targets()[place];
            interleave();
            let writes = if budget.spend(steps) { Writes::WithFlush } else { writes };
            if messages.were_lost() && target.subscriber.durable().is_none() {
                continue;
            }
            if target.subscriber.id == publisher.session {
                if target.no_local {
                    continue;
                }
                if target.partly_no_local {
                    self.publish_to(worker, &target.subscriber, messages, |own| !own.no_local);
                    continue;
                }
            }
            let offer = Offer {
                range: 0..messages.len(),
                qos: messages.qos().min(target.qos),
                retain: messages.retain() && target.retain_as_published,
                identifiers: target.identifiers.as_slice(),
                shared: None,
                writes,
            };
            if target.subscriber.offer(worker, messages, &offer) == Offered::FlushLater {
                self.to_flush.push_back(target.subscriber.clone());
            }
            self.note_overflow(messages, &target.subscriber);
        }
        for group in route.groups() {
            let writes =
                if budget.spend(messages.len()) { Writes::WithFlush } else { Writes::Together };
            self.publish_shared(worker, tenant, group, publisher, messages, writes);
        }
        route
    }

    /// Whether messages of a topic go to a session whose shard is closed.
    pub fn reaches_closed(&mut self, tenant: &Arc<Tenant>, topic: &str) -> bool {
        let route = self.route(tenant, topic);
        let is_closed =
            |session: &SessionRef| session.durable().is_some_and(|it| !it.shard.is_open());
        let members = route.groups().iter().flat_map(|group| group.members().to_vec());
        route.targets().iter().any(|target| is_closed(&target.subscriber))
            || members.into_iter().any(|member| is_closed(&member.subscriber))
    }

    /// How many sessions a message of a topic goes to.
    pub fn subscribers(&mut self, tenant: &Arc<Tenant>, topic: &str) -> usize {
        let route = self.route(tenant, topic);
        route.targets().len() + route.groups().len()
    }

    /// Sends what has been offered and not been written, as far as the budget goes.
    pub fn flush(&mut self, worker: &Worker, budget: &mut Budget) {
        while let Some(session) = self.to_flush.pop_front() {
            session.flush(worker);
            if budget.spend(FLUSH_STEPS) {
                return;
            }
        }
    }

    /// Whether something has been offered and not been written.
    pub fn has_unflushed(&self) -> bool {
        !self.to_flush.is_empty()
    }

    /// Forgets routes that have changed, so that sessions that have ended are not kept in memory.
    pub fn forget_stale(&mut self) {
        let weighs = &mut self.weight;
        self.cache.retain(|cached| {
            let tenant = cached.tenant.upgrade();
            let keep = tenant.is_some_and(|tenant| cached.route.is_current(&tenant.index));
            if !keep {
                *weighs -= weight(&cached.topic, &cached.route);
            }
            keep
        });
    }

    /// Delivers messages to one session, for those of its matching subscriptions that `count`.
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

    /// Sessions whose queues are full and have got messages nevertheless, since the last time: whoever
    /// published them is to be held back.
    pub fn take_full(&mut self) -> Vec<SessionRef> {
        std::mem::take(&mut self.full)
    }

    /// How many of the messages, from the first one on, can be published without refusing their
    /// publisher. All, unless a store takes nothing new, or a queue is full and the tenant's queues are to
    /// `reject` then. An error: a shard is closed that has to store them.
    pub fn admissible(
        &mut self,
        worker: &Worker,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        messages: &Messages<'_>,
        reject: bool,
    ) -> Result<usize, ShardClosed> {
        if messages.qos() == QoS::AtMostOnce || !(reject || tenant.shards.any_refuses()) {
            return Ok(messages.len());
        }
        let refuse = |client: &str, reason, admitted: usize| {
            for _ in admitted..messages.len() {
                tenant.dropped(worker, reason, Some(messages.topic()), client);
            }
            admitted
        };
        let not_stored = |client: &str, shard: &DurableShard| match shard.is_open() {
            true => Ok(refuse(client, DropReason::StoreFull, 0)),
            false => Err(ShardClosed),
        };
        if messages.retain() && messages.class().is_stored() {
            let shard = tenant.shards.of(&tenant.name, messages.topic());
            if shard.refuses() {
                return not_stored(publisher.client_id, &shard);
            }
        }
        let limits = tenant.queue_limits();
        let route = self.route(tenant, messages.topic());
        let mut least = (Room::UNBOUNDED, None);
        let mut consider = |session: &SessionRef, room: Room| {
            if room.messages < least.0.messages || room.bytes < least.0.bytes {
                least = (room.min(least.0), Some(session.clone()));
            }
        };
        for target in route.targets() {
            let session = &target.subscriber;
            let qos = messages.qos().min(target.qos);
            let is_own = session.id == publisher.session && target.no_local;
            if qos == QoS::AtMostOnce || is_own {
                continue;
            }
            if messages.are_stored(qos)
                && let Some(shard) = session.refusing_shard()
            {
                return not_stored(&session.client_id, shard);
            }
            if reject {
                consider(session, session.room(&limits));
            }
        }
        for group in route.groups() {
            // One of them will do.
            let members = group.members();
            let sessions = || members.iter().map(|member| &member.subscriber);
            if let Some(first) = sessions().next()
                && let Some(shard) = first.refusing_shard()
                && sessions().all(|session| session.store_refuses())
            {
                return not_stored(&first.client_id, shard);
            }
            let rooms = sessions().map(|session| (session, session.room(&limits)));
            if let Some((session, room)) = rooms.max_by_key(|(_, room)| room.messages)
                && reject
            {
                consider(session, room);
            }
        }
        let (mut room, fullest) = least;
        let admitted = messages.sizes().take_while(|size| room.take(*size)).count();
        let client = fullest.as_ref().map_or("", |session| &session.client_id);
        Ok(refuse(client, DropReason::QueueRefuses, admitted))
    }

    /// Whether somebody who would get messages of a topic has a full queue.
    pub fn is_any_full(&mut self, tenant: &Arc<Tenant>, topic: &str, qos: QoS) -> bool {
        let limits = tenant.queue_limits();
        let route = self.route(tenant, topic);
        let is_full = |session: &SessionRef| !session.room(&limits).is_some();
        let waits = |granted: QoS| qos.min(granted) != QoS::AtMostOnce;
        let mut targets = route.targets().iter();
        targets.any(|target| waits(target.qos) && is_full(&target.subscriber))
            || route.groups().iter().any(|group| {
                let members = group.members();
                let mut waiting =
                    members.iter().filter(|member| waits(member.options.qos)).peekable();
                // One of them will do.
                waiting.peek().is_some() && waiting.all(|member| is_full(&member.subscriber))
            })
    }

    fn publish_shared(
        &mut self,
        worker: &Worker,
        tenant: &Tenant,
        group: &SharedGroup<SessionRef>,
        publisher: Publisher<'_>,
        messages: &mut Messages<'_>,
        writes: Writes,
    ) {
        let name: Arc<str> = share_name(group).into();
        let (strategy, hash) = strategy(tenant.share_strategy(), publisher, messages.topic());
        for index in 0..messages.len() {
            // A member that goes away at this moment is not chosen again: it is offline or has left.
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
                        break;
                    }
                    Offered::Done | Offered::Gone => break,
                }
            }
        }
    }

    fn route(&mut self, tenant: &Arc<Tenant>, topic: &str) -> Arc<Route<SessionRef>> {
        let hash = self.hasher.hash_one((tenant.number, topic));
        let found = self
            .cache
            .find_mut(hash, |cached| cached.number == tenant.number && *cached.topic == *topic);
        if let Some(cached) = found {
            if !cached.route.is_current(&tenant.index) {
                let route = Arc::new(tenant.index.route(topic));
                self.weight -= weight(topic, &cached.route);
                self.weight += weight(topic, &route);
                cached.route = route;
                cached.order = None;
            }
            return Arc::clone(&cached.route);
        }
        let route = Arc::new(tenant.index.route(topic));
        self.weight += weight(topic, &route);
        if self.weight > CACHE_WEIGHT_MAX {
            self.cache.clear();
            self.weight = weight(topic, &route);
        }
        let cached = Cached {
            number: tenant.number,
            tenant: Arc::downgrade(tenant),
            topic: topic.into(),
            route: route.clone(),
            order: None,
        };
        let hasher = &self.hasher;
        self.cache
            .insert_unique(hash, cached, |cached| hasher.hash_one((cached.number, &*cached.topic)));
        route
    }

    /// The places of a route's targets, those that are stored first, in ascending order of their numbers: a shard that has
    /// given a message to one of them has given it to all before.
    fn stored_order(
        &mut self,
        tenant: &Tenant,
        topic: &str,
        route: &Arc<Route<SessionRef>>,
    ) -> Arc<[u32]> {
        let hash = self.hasher.hash_one((tenant.number, topic));
        let cached = self
            .cache
            .find_mut(hash, |cached| cached.number == tenant.number && *cached.topic == *topic)
            .filter(|cached| Arc::ptr_eq(&cached.route, route));
        if let Some(order) = cached.as_ref().and_then(|cached| cached.order.clone()) {
            return order;
        }
        let targets = route.targets();
        let mut order: Vec<_> = (0..).take(targets.len()).collect();
        let number = |place: &u32| targets[*place as usize].subscriber.stored_number();
        order.sort_by_key(|place| number(place).unwrap_or(u64::MAX));
        if !holds(Rule::VisitInOrder) {
            order.reverse();
        }
        let order: Arc<[u32]> = order.into();
        if let Some(cached) = cached {
            cached.order = Some(Arc::clone(&order));
        }
        order
    }
}

/// How a member of a shared subscription is chosen, and by which hash.
fn strategy(of: ShareStrategy, publisher: Publisher<'_>, topic: &str) -> (Strategy, u64) {
    // Fixed hashing: the choice must be the same on all threads.
    let hash = |text: &str| foldhash::fast::FixedState::default().hash_one(text);
    match of {
        ShareStrategy::RoundRobin => (Strategy::RoundRobin, 0),
        ShareStrategy::LeastInFlight => (Strategy::LeastInFlight, 0),
        ShareStrategy::HashClient => (Strategy::Hash, hash(publisher.client_id)),
        ShareStrategy::HashTopic => (Strategy::Hash, hash(topic)),
    }
}

/// What a route costs to remember, in units of some 50 bytes: its targets, its topic, and itself.
fn weight(topic: &str, route: &Route<SessionRef>) -> usize {
    let identifiers: usize =
        route.targets().iter().map(|target| target.identifiers.as_slice().len() / 8).sum();
    route.targets().len() + identifiers + route.groups().len() + topic.len() / 48 + 4
}

fn load(session: &SessionRef) -> Load {
    match () {
        () if session.has_ended() => Load::Gone,
        () if session.is_online() => {
            Load::InFlight(session.inspect(|outbound, _| outbound.depth()))
        }
        () => Load::Away,
    }
}

/// The filter of a shared subscription as clients write it.
pub fn share_name(group: &SharedGroup<SessionRef>) -> String {
    format!("$share/{}/{}", group.name(), group.filter())
}
