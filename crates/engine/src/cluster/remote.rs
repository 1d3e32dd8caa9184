//! The other brokers, as one tenant sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use barid_core::commits::LOST;
use barid_core::message::Message;
use barid_core::time::MonoTime;
use barid_core::topic_index::{Load, Route, SharedGroup, Strategy, Subscriber};
use barid_peers::{Destination, Inquiry, Retaining, Run, Told};
use mqtt_proto::QoS;

use super::link::{HeldFor, HeldRun, Link};
use super::{Cluster, Home, KeptWill, Owner, RemoteIndex, RemoteSubscriber};
use crate::durable::Commits;
use crate::names::is_local;
use crate::progress::Sources;
use crate::run::Messages;
use crate::worker::Worker;

/// Another broker, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberRef(pub(super) u8);

impl MemberRef {
    /// The number of its place.
    pub fn place(self) -> u8 {
        self.0
    }
}

impl Subscriber for MemberRef {
    fn key(&self) -> u64 {
        u64::from(self.0)
    }
}

/// What a tenant has of the cluster.
pub struct Remote {
    cluster: Arc<Cluster>,
    /// The name of the tenant.
    tenant: Arc<str>,
    index: Arc<RemoteIndex>,
    /// The broker that has what belongs to the tenant as a whole, as [`encode`] writes it.
    home: AtomicU32,
}

/// The origin of messages that leave this broker.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The thread that publishes them.
    pub worker: &'a Worker,
    /// The client identifier of the publisher.
    pub publisher: &'a str,
    /// The user to whom retained messages belong; empty: none.
    pub user: &'a str,
    /// What messages may have to wait for before they leave.
    pub sources: &'a Sources,
}

/// What became of messages for other brokers.
#[derive(Default)]
pub(crate) struct Sent {
    /// Number of messages that had no room and may be lost (QoS 0).
    pub lost: usize,
    /// Shared subscriptions whose members at other brokers have all gone meanwhile, and the first message that none of them gets.
    pub unserved: Vec<(Arc<SharedGroup<RemoteSubscriber>>, usize)>,
}

/// What messages for another broker have found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Room,
    /// No room, and they may be lost.
    Full,
    /// The broker is out of the cluster by now.
    Nobody,
}

impl Remote {
    /// Returns what the tenant of this name has of the cluster.
    pub(crate) fn of(cluster: &Arc<Cluster>, tenant: &str) -> Self {
        let (index, home) = (cluster.index(tenant), cluster.home_of_tenant(tenant));
        let home = AtomicU32::new(encode(home));
        Self { cluster: Arc::clone(cluster), tenant: tenant.into(), index, home }
    }

    /// The broker that has what belongs to the tenant as a whole.
    pub fn home(&self) -> Home {
        decode(self.home.load(Ordering::Acquire))
    }

    /// Looks up which broker has what belongs to the tenant as a whole. Returns the one that had it before.
    pub(crate) fn look_for_home(&self) -> Home {
        let home = self.cluster.home_of_tenant(&self.tenant);
        decode(self.home.swap(encode(home), Ordering::AcqRel))
    }

    /// Whether this broker publishes nothing now because what belongs to the tenant as a whole is being moved.
    pub(crate) fn holds_for_move(&self, now: MonoTime) -> bool {
        let slots = self.cluster.slots();
        slots.is_some_and(|slots| self.cluster.is_held_for(slots.slot_of_tenant(&self.tenant), now))
    }

    /// Whether a home is another broker that is out of the cluster.
    pub(crate) fn is_out(&self, home: Home) -> bool {
        matches!(home, Home::Elsewhere(member) if self.cluster.is_out(member))
    }

    /// [`Cluster::is_held`].
    #[inline]
    pub(crate) fn is_held(&self, now: MonoTime) -> bool {
        self.cluster.is_held(now)
    }

    /// [`Cluster::serves`].
    pub(crate) fn serves(&self, now: MonoTime) -> bool {
        self.cluster.serves(now)
    }

    /// Number of new lives that this broker has begun.
    pub(crate) fn lives(&self) -> u64 {
        self.cluster.lives.load(Ordering::SeqCst)
    }

    /// What the acknowledgement of a message waits for that was routed while the broker did not [serve](Self::serves): it
    /// never leaves.
    pub(crate) fn not_serving(&self) -> Commits {
        Commits::one(self.cluster.first_source, LOST)
    }

    /// A session has a subscription with a filter that it did not have before.
    pub(crate) fn subscribed(&self, filter: &str) {
        self.cluster.subscribed(&self.tenant, filter);
    }

    /// A session has lost its subscription with this filter.
    pub(crate) fn unsubscribed(&self, filter: &str) {
        self.cluster.unsubscribed(&self.tenant, filter);
    }

    /// Returns what must be done before a subscription with this filter has an effect on all brokers that may acknowledge
    /// messages.
    pub(crate) fn heard_everywhere(&self, filter: &str) -> Commits {
        self.cluster.heard_everywhere(&self.tenant, filter)
    }

    /// A client has connected whose session is not stored: other brokers keep its will, in place of an earlier one.
    pub(crate) fn keep_will(&self, client_id: &str, will: KeptWill) {
        self.cluster.keep_will(&self.tenant, client_id, will);
    }

    /// A will of a client has been published or discarded.
    pub(crate) fn will_is_over(&self, client_id: &str, message: &Arc<Message>) {
        self.cluster.will_is_over(&self.tenant, client_id, message);
    }

    /// Returns the brokers to which messages of a topic go. Topics that begin with `$` belong to one broker.
    pub(crate) fn route(&self, topic: &str) -> Option<Route<RemoteSubscriber>> {
        (!self.index.is_empty() && !is_local(topic)).then(|| self.cluster.route(&self.index, topic))
    }

    /// Returns the brokers to which messages of a topic go, some of them perhaps several times. A shared subscription with
    /// members at several brokers, this one included, has one of them get a message.
    pub fn receivers(&self, topic: &str) -> Vec<MemberRef> {
        let Some(route) = self.route(topic) else { return Vec::new() };
        let of_groups = route.groups().iter().flat_map(|group| self.members_of(group));
        route
            .recipients()
            .iter()
            .map(|recipient| recipient.subscriber.member)
            .chain(of_groups)
            .collect()
    }

    /// Whether a new lookup of a topic would give the same route.
    pub(crate) fn is_current(&self, topic: &str, route: Option<&Route<RemoteSubscriber>>) -> bool {
        match route {
            Some(route) => route.is_current(&self.index),
            None => self.index.is_empty() || is_local(topic),
        }
    }

    /// Whether the links to all these brokers have room for messages that must not be lost.
    pub(crate) fn has_room(&self, thread: usize, route: &Route<RemoteSubscriber>) -> bool {
        let has_room = |member: &MemberRef| self.cluster.link(thread, *member).has_room();
        route.recipients().iter().all(|recipient| has_room(&recipient.subscriber.member))
            && route.groups().iter().all(|group| {
                let members = self.members_of(group);
                members.is_empty() || members.iter().any(has_room)
            })
    }

    /// Sends messages to the other brokers that have subscriptions to their topic. A shared subscription that has members
    /// both here and there is served by one of the two; `is_served` tells whether by this broker.
    pub(crate) fn send(
        &self,
        origin: Origin<'_>,
        route: &Route<RemoteSubscriber>,
        messages: &mut Messages<'_>,
        is_served: impl Fn(&SharedGroup<RemoteSubscriber>) -> bool,
    ) -> Sent {
        let mut sent = Sent::default();
        let may_be_lost = messages.qos() == QoS::AtMostOnce;
        for recipient in route.recipients() {
            if messages.were_sent_to(recipient.subscriber.member.0) {
                continue;
            }
            let to = (recipient.subscriber.member, Destination::Sessions);
            let (all, no) = (0..messages.len(), || false);
            if self.send_to(origin, to, messages, all, (may_be_lost, no)) == Found::Full {
                sent.lost += messages.len();
            }
            messages.note_sent_to(recipient.subscriber.member.0);
        }
        for group in route.groups().iter().filter(|group| !is_served(group)) {
            let name = name_of(group);
            for index in 0..messages.len() {
                match self.send_to_one(origin, (group, &name), messages, index) {
                    Found::Room => {}
                    Found::Full => sent.lost += 1,
                    Found::Nobody => {
                        sent.unserved.push((Arc::clone(group), index));
                        break;
                    }
                }
            }
        }
        sent
    }

    /// Sends the last of the messages, which is retained, to the other brokers that can be reached and to which it does not
    /// go for the sake of their sessions. Nobody waits for them: they hear of it later, if the message is lost.
    pub(crate) fn send_retained(
        &self,
        origin: Origin<'_>,
        route: Option<&Route<RemoteSubscriber>>,
        messages: &mut Messages<'_>,
    ) {
        let last = messages.len() - 1;
        let is_sent = |member: MemberRef| {
            let mut recipients = route.into_iter().flat_map(Route::recipients);
            recipients.any(|recipient| recipient.subscriber.member == member)
        };
        for member in self.cluster.up().filter(|member| !is_sent(*member)) {
            let to = (member, Destination::Sessions);
            self.send_to(origin, to, messages, last..last + 1, (true, || false));
        }
    }

    /// Gives a message to a member of a shared subscription, `$share/…`, at another broker. Returns false if no other broker has a
    /// member, or if there is no room and the message may be lost (QoS 0).
    pub(crate) fn give(
        &self,
        (worker, sources): (&Worker, &Sources),
        shared: &str,
        messages: &mut Messages<'_>,
        index: usize,
    ) -> bool {
        let route = self.route(messages.topic());
        let groups = route.iter().flat_map(|route| route.groups());
        let mut of_name = groups.filter(|group| name_of(group) == shared);
        let Some(group) = of_name.next() else { return false };
        let origin = Origin { worker, publisher: "", user: "", sources };
        self.send_to_one(origin, (group, shared), messages, index) == Found::Room
    }

    /// Sends a message to one of the brokers with members of a shared subscription, which has the name `$share/…`.
    fn send_to_one(
        &self,
        origin: Origin<'_>,
        (group, name): (&SharedGroup<RemoteSubscriber>, &str),
        messages: &mut Messages<'_>,
        index: usize,
    ) -> Found {
        let may_be_lost = messages.qos() == QoS::AtMostOnce;
        // Whoever is out of the cluster by now is not picked again.
        while let Some(member) = self.pick(group) {
            let is_awaited = || self.cluster.counts(&member);
            let to = (member.member, Destination::Shared(name));
            let range = index..index + 1;
            match self.send_to(origin, to, messages, range, (may_be_lost, is_awaited)) {
                Found::Nobody => {}
                found => return found,
            }
        }
        Found::Nobody
    }

    /// Whether the link to the broker with the old session of a client, if that is another one, has room for its end.
    pub(crate) fn can_end_old_session(&self, worker: &Worker, client_id: &str) -> bool {
        let home = self.home_of_session(client_id);
        home.is_none_or(|home| self.cluster.link(worker.id, home).has_room())
    }

    /// Ends the session that a client has at another broker, unless it has connected to that one since `at`, in microseconds
    /// since the Unix epoch. Returns what must be done before it has ended for good.
    pub(crate) fn end_old_session(&self, worker: &Worker, client_id: &str, at: u64) -> Commits {
        let Some(home) = self.home_of_session(client_id) else { return Commits::default() };
        let link = self.cluster.link(worker.id, home);
        let to = Destination::OldSession(at);
        let run = Run::unnumbered(&self.tenant, client_id, to, true, &[]);
        let sequence =
            link.add(run, 0, false, || false).expect("a run that must not be lost is added");
        Commits::one(link.source(), sequence)
    }

    /// The broker that has the stored session of a client, if that is another one. While it is down, the session stays there.
    fn home_of_session(&self, client_id: &str) -> Option<MemberRef> {
        match self.cluster.slots()?.owner_of_session(&self.tenant, client_id) {
            Owner::Elsewhere(home) => {
                self.cluster.place(&home).filter(|home| self.cluster.answers(*home))
            }
            Owner::Here | Owner::Closed => None,
        }
    }

    /// Whether the broker that has the state store takes requests now.
    pub(crate) fn takes_requests(&self, worker: &Worker, home: MemberRef) -> bool {
        self.cluster.can_be_reached(home) && self.cluster.link(worker.id, home).has_room()
    }

    /// Sends a request to the broker that has the state store. `request`: the message, as a packet of MQTT 5, or nothing.
    /// Returns what is done when it has been carried out, and what it changes is durable; `None`: that broker is out of the cluster
    /// by now.
    pub(crate) fn inquire(
        &self,
        worker: &Worker,
        home: MemberRef,
        client_id: &str,
        inquiry: Inquiry<'_>,
        request: &[u8],
    ) -> Option<Commits> {
        let link = self.cluster.link(worker.id, home);
        let to = Destination::StateStore(inquiry);
        let run = Run::unnumbered(&self.tenant, client_id, to, true, request);
        let sequence = link.add(run, 1, false, || false).filter(|sequence| *sequence > 0)?;
        Some(Commits::one(link.source(), sequence))
    }

    /// Tells a client of another broker something about the state store, when `after` is durable.
    pub(crate) fn tell_inquirer(
        &self,
        sources: &Sources,
        member: MemberRef,
        (client_id, told): (&str, Told),
        after: Commits,
        (is_v5, packets): (bool, &[u8]),
    ) {
        let link = self.link_to_inquirer(member, told.connection);
        let (tenant, publisher) = (Arc::clone(&self.tenant), client_id.into());
        let to = HeldFor::Inquirer(told);
        let run = HeldRun { tenant, publisher, to, is_v5, packets: packets.into() };
        link.add_after(sources, after, run, || false);
    }

    /// Whether the link over which a client of another broker is told something has room.
    pub(crate) fn has_room_for_told(&self, member: MemberRef, connection: u64) -> bool {
        self.link_to_inquirer(member, connection).has_room()
    }

    /// The link over which a client of another broker is told everything, whichever thread tells it. Links are not in step with
    /// each other, and changes of a key must be told in their order.
    fn link_to_inquirer(&self, member: MemberRef, connection: u64) -> &Link {
        self.cluster.link(connection as usize, member)
    }

    /// Whether another broker has a member of a shared subscription, `$share/…`.
    pub(crate) fn shares(&self, topic: &str, shared: &str) -> bool {
        let route = self.route(topic);
        route.is_some_and(|route| self.has_group(route.groups(), |group| name_of(group) == shared))
    }

    /// Whether another broker has members of one of these shared subscriptions.
    pub(crate) fn has_group(
        &self,
        groups: &[Arc<SharedGroup<RemoteSubscriber>>],
        is_it: impl Fn(&SharedGroup<RemoteSubscriber>) -> bool,
    ) -> bool {
        groups.iter().any(|group| is_it(group) && !self.members_of(group).is_empty())
    }

    /// Returns the brokers that have members of a shared subscription.
    fn members_of(&self, group: &SharedGroup<RemoteSubscriber>) -> Vec<MemberRef> {
        let members = group.members();
        let counted = members.iter().filter(|member| self.cluster.counts(&member.subscriber));
        counted.map(|member| member.subscriber.member).collect()
    }

    /// Chooses one of them.
    fn pick(&self, group: &SharedGroup<RemoteSubscriber>) -> Option<RemoteSubscriber> {
        let load = |subscriber: &RemoteSubscriber| match self.cluster.counts(subscriber) {
            true => Load::InFlight(0),
            false => Load::Gone,
        };
        group.pick(Strategy::RoundRobin, 0, load).map(|member| member.subscriber)
    }

    fn send_to(
        &self,
        origin: Origin<'_>,
        (member, to): (MemberRef, Destination<'_>),
        messages: &mut Messages<'_>,
        range: std::ops::Range<usize>,
        (may_be_lost, is_awaited): (bool, impl FnOnce() -> bool),
    ) -> Found {
        let link = self.cluster.link(origin.worker.id, member);
        let count = range.len();
        let stamp = messages.stamp().filter(|_| to == Destination::Sessions);
        let retaining = stamp.map(|stamp| Retaining { stamp, user: origin.user });
        // Responses of the state store are not overtaken by later ones.
        let after = messages.are_responses().then(|| messages.after().clone());
        let (is_v5, packets) = messages.as_published(range);
        let (tenant, publisher) = (&*self.tenant, origin.publisher);
        if let Some(after) = after {
            if !link.has_room() {
                return Found::Full;
            }
            let to = match to {
                Destination::Shared(group) => HeldFor::Shared(group.into()),
                _ => HeldFor::Sessions,
            };
            let (tenant, publisher) = (Arc::clone(&self.tenant), publisher.into());
            let run = HeldRun { tenant, publisher, to, is_v5, packets: packets.into() };
            return match link.add_after(origin.sources, after, run, is_awaited) {
                true => Found::Room,
                false => Found::Nobody,
            };
        }
        let run = Run { retaining, ..Run::unnumbered(tenant, publisher, to, is_v5, packets) };
        match link.add(run, count, may_be_lost, is_awaited) {
            Some(0) => Found::Nobody,
            Some(sequence) => {
                // A publisher waits for no acknowledgement of a copy that may be lost.
                if !may_be_lost || messages.qos() == QoS::AtMostOnce {
                    messages.note_sent(link.source(), sequence);
                }
                Found::Room
            }
            None => Found::Full,
        }
    }
}

/// Codes of [`Home`]s without a number; that of another broker is [`ELSEWHERE`] and the number of its place.
const EACH: u32 = 0;
const HERE: u32 = 1;
const CLOSED: u32 = 2;
const ELSEWHERE: u32 = 3;

fn encode(home: Home) -> u32 {
    match home {
        Home::Each => EACH,
        Home::Here => HERE,
        Home::Closed => CLOSED,
        Home::Elsewhere(member) => ELSEWHERE + u32::from(member.0),
    }
}

fn decode(home: u32) -> Home {
    match home {
        EACH => Home::Each,
        HERE => Home::Here,
        CLOSED => Home::Closed,
        other => Home::Elsewhere(MemberRef(u8::try_from(other - ELSEWHERE).expect("a place"))),
    }
}

/// The whole filter of a shared subscription.
fn name_of(group: &SharedGroup<RemoteSubscriber>) -> String {
    format!("$share/{}/{}", group.name(), group.filter())
}
