//! The targets of a topic: all recipients of what is published to it.

use std::sync::{Arc, OnceLock};

use barid_core::queue::{QueueLimits, Room};
use barid_core::topic_index::{self, Load, Route, SharedGroup};
use mqtt_proto::QoS;

use crate::bindings::Bound;
use crate::cluster::RemoteSubscriber;
use crate::durable::DurableShard;
use crate::faults::{Rule, holds};
use crate::run::Messages;
use crate::session::SessionRef;
use crate::tenant::Tenant;

/// One target of a topic.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The entity that a binding names.
    Entity(&'a Arc<Bound>),
    /// A session that has subscribed.
    Session(&'a topic_index::Recipient<SessionRef>),
    /// A shared subscription: one of its members gets each message.
    Shared(&'a Arc<SharedGroup<SessionRef>>),
}

/// The targets of one topic, as of the moment at which they were looked up.
pub struct Targets {
    /// The bindings that take the topic, ordered by name, and the
    /// [generation](crate::bindings::Bindings::generation) of the table that they are from.
    bindings: (u64, Box<[Arc<Bound>]>),
    /// The sessions and shared subscriptions.
    route: Route<SessionRef>,
    /// The other brokers of a cluster, if any have subscriptions.
    remote: Option<Route<RemoteSubscriber>>,
    /// Indexes of the sessions in the route, in the order of [`Self::stored_order`]. Computed when first
    /// needed.
    order: OnceLock<Box<[u32]>>,
}

/// The reason why a target accepts no message that it would have to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its shard is closed.
    ShardClosed,
    /// The disk of its shard is full or fails.
    StoreFull,
}

impl Targets {
    /// Looks up the targets of a topic.
    pub fn of(tenant: &Tenant, topic: &str) -> Self {
        Self {
            bindings: tenant.bindings.of_topic(topic),
            route: tenant.index.route(topic),
            remote: tenant.remote.as_ref().and_then(|remote| remote.route(topic)),
            order: OnceLock::new(),
        }
    }

    /// Whether a new lookup of the topic would give the same targets.
    pub fn are_current(&self, tenant: &Tenant, topic: &str) -> bool {
        self.route.is_current(&tenant.index)
            && self.bindings.0 == tenant.bindings.generation()
            && tenant
                .remote
                .as_ref()
                .is_none_or(|remote| remote.is_current(topic, self.remote.as_ref()))
    }

    /// Returns all targets in the order in which they get messages. Entities come first, because an entity
    /// can refuse a message, and no other target must get a refused message.
    pub fn iter(&self) -> impl Iterator<Item = Target<'_>> {
        let entities = self.bindings().iter().map(Target::Entity);
        let sessions = self.route.recipients().iter().map(Target::Session);
        entities.chain(sessions).chain(self.route.groups().iter().map(Target::Shared))
    }

    /// Number of targets.
    pub fn len(&self) -> usize {
        let remote =
            |route: &Route<RemoteSubscriber>| route.recipients().len() + route.groups().len();
        let here =
            self.bindings().len() + self.route.recipients().len() + self.route.groups().len();
        here + self.remote.as_ref().map_or(0, remote)
    }

    /// Whether the topic has no targets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bindings that take the topic into entities, ordered by name.
    pub fn bindings(&self) -> &[Arc<Bound>] {
        &self.bindings.1
    }

    /// The other brokers that have subscriptions; `None`: none has.
    pub fn remote(&self) -> Option<&Route<RemoteSubscriber>> {
        self.remote.as_ref()
    }

    /// The sessions and shared subscriptions of this broker.
    pub fn route(&self) -> &Route<SessionRef> {
        &self.route
    }

    /// Returns the indexes of the sessions in the route: stored sessions first, in ascending order of their
    /// numbers. A shard that has given a message to one of its sessions has therefore already given it to all
    /// sessions with smaller numbers.
    pub fn stored_order(&self) -> &[u32] {
        self.order.get_or_init(|| {
            let sessions = self.route.recipients();
            let mut order: Vec<_> = (0..).take(sessions.len()).collect();
            let number = |place: &u32| sessions[*place as usize].subscriber.stored_number();
            order.sort_by_key(|place| number(place).unwrap_or(u64::MAX));
            if !holds(Rule::VisitInOrder) {
                order.reverse();
            }
            order.into()
        })
    }

    /// Cost of caching the targets, in units of about 50 bytes.
    pub fn weight(&self) -> usize {
        let identifiers =
            |recipient: &topic_index::Recipient<_>| recipient.identifiers.as_slice().len() / 8;
        self.len() + self.route.recipients().iter().map(identifiers).sum::<usize>()
    }
}

impl Target<'_> {
    /// Whether the target, or a member of a shared subscription, is stored in a shard that is closed.
    pub fn reaches_closed(&self, tenant: &Tenant) -> bool {
        let is_closed = |session: &SessionRef| {
            session.durable().is_some_and(|durable| !durable.shard.is_open())
        };
        match self {
            Self::Entity(bound) => {
                bound.node(tenant.used_entities()).is_ok_and(|node| node.reaches_closed())
            }
            Self::Session(recipient) => is_closed(&recipient.subscriber),
            Self::Shared(group) => {
                group.members().iter().any(|member| is_closed(&member.subscriber))
            }
        }
    }

    /// Returns why the target does not accept the messages: it would have to store them, and its shard
    /// accepts nothing new. An entity whose disk is full refuses only when messages are sent to it.
    pub fn refuses(&self, tenant: &Tenant, messages: &Messages<'_>) -> Option<Refusal> {
        let refusal = |shard: &Arc<DurableShard>| match shard.is_open() {
            true => Refusal::StoreFull,
            false => Refusal::ShardClosed,
        };
        match self {
            Self::Entity(_) => self.reaches_closed(tenant).then_some(Refusal::ShardClosed),
            Self::Session(recipient) => {
                let is_stored = messages.are_stored(messages.qos().min(recipient.qos));
                recipient.subscriber.refusing_shard().filter(|_| is_stored).map(refusal)
            }
            Self::Shared(group) => {
                // One member that takes the messages is enough.
                let members = group.members();
                let mut shards = members.iter().map(|member| member.subscriber.refusing_shard());
                let first = shards.next()??;
                shards.all(|shard| shard.is_some()).then(|| refusal(first))
            }
        }
    }

    /// Returns the room for messages of this QoS in the queue of the target, with `limits` that are so many `times` as high
    /// as set. Returns `None` if they do not
    /// wait there, or if the target is an entity, which refuses only when messages are sent to it.
    pub fn room(&self, qos: QoS, limits: &QueueLimits, times: usize) -> Option<Room> {
        let waits = |granted: QoS| qos.min(granted) != QoS::AtMostOnce;
        match self {
            Self::Entity(_) => None,
            Self::Session(recipient) => {
                waits(recipient.qos).then(|| recipient.subscriber.room(limits, times))
            }
            Self::Shared(group) => {
                // One member that has room is enough, and so is one for which messages do not wait.
                let members = group.members();
                if !members.iter().all(|member| waits(member.options.qos)) {
                    return None;
                }
                let rooms = members.iter().map(|member| member.subscriber.room(limits, times));
                rooms.max_by_key(|room| (room.is_some(), room.messages))
            }
        }
    }

    /// Returns how many bytes more fit into all queues of the session's user, if its limit were so many times as high.
    pub fn user_room(&self, times: usize) -> usize {
        match self {
            Self::Session(recipient) => recipient.subscriber.user_room(times),
            Self::Entity(_) | Self::Shared(_) => usize::MAX,
        }
    }

    /// Whether this is the session with this number and the session asked not to get its own messages (No
    /// Local).
    pub fn is_own(&self, session: u64) -> bool {
        matches!(self, Self::Session(one) if one.subscriber.id == session && one.no_local)
    }

    /// Returns the client identifier under which dropped messages are recorded. For a shared subscription
    /// this is the identifier of its first member; for an entity it is empty.
    pub fn client_id(&self) -> Box<str> {
        match self {
            Self::Entity(_) => Box::default(),
            Self::Session(recipient) => recipient.subscriber.client_id.clone(),
            Self::Shared(group) => group
                .members()
                .first()
                .map_or_else(Box::default, |member| member.subscriber.client_id.clone()),
        }
    }
}

/// Returns whether a member of a shared subscription can take a message now, and how busy it is.
pub fn load(session: &SessionRef) -> Load {
    match () {
        () if session.has_ended() => Load::Gone,
        () if session.is_online() => {
            Load::InFlight(session.inspect(|outbound, _| outbound.depth()))
        }
        () => Load::Away,
    }
}
