//! The other brokers, as one tenant sees them.

use std::sync::Arc;

use barid_core::topic_index::{Load, Route, SharedGroup, Strategy, Subscriber};
use barid_peers::Destination;
use mqtt_proto::QoS;

use super::{Cluster, RemoteIndex};
use crate::durable::Commits;
use crate::names::is_reserved;
use crate::run::Messages;
use crate::worker::Worker;

/// Another broker, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberRef(pub(super) u8);

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
}

/// The origin of messages that leave this broker.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The thread that publishes them.
    pub worker: &'a Worker,
    /// The client identifier of the publisher.
    pub publisher: &'a str,
}

impl Remote {
    /// Returns what the tenant of this name has of the cluster.
    pub(crate) fn of(cluster: &Arc<Cluster>, tenant: &str) -> Self {
        let (cluster, index) = (Arc::clone(cluster), cluster.index(tenant));
        Self { cluster, tenant: tenant.into(), index }
    }

    /// A session has a subscription with a filter that it did not have before.
    pub(crate) fn subscribed(&self, filter: &str) {
        self.cluster.subscribed(&self.tenant, filter);
    }

    /// A session has lost its subscription with this filter.
    pub(crate) fn unsubscribed(&self, filter: &str) {
        self.cluster.unsubscribed(&self.tenant, filter);
    }

    /// Returns what must be done before a subscription with this filter has an effect on all brokers that can be
    /// reached.
    pub(crate) fn heard_everywhere(&self, filter: &str) -> Commits {
        self.cluster.heard_everywhere(&self.tenant, filter)
    }

    /// Returns the brokers to which messages of a topic go. Topics that begin with `$` belong to one broker.
    pub(crate) fn route(&self, topic: &str) -> Option<Route<MemberRef>> {
        (!self.index.is_empty() && !is_local(topic)).then(|| self.index.route(topic))
    }

    /// Returns the brokers to which messages of a topic go, some of them perhaps several times. A shared subscription with
    /// members at several brokers, this one included, has one of them get a message.
    pub fn receivers(&self, topic: &str) -> Vec<MemberRef> {
        let Some(route) = self.route(topic) else { return Vec::new() };
        let of_groups = route.groups().iter().flat_map(|group| {
            group.members().iter().map(|member| member.subscriber).collect::<Vec<_>>()
        });
        route.recipients().iter().map(|recipient| recipient.subscriber).chain(of_groups).collect()
    }

    /// Whether a new lookup of a topic would give the same route.
    pub(crate) fn is_current(&self, topic: &str, route: Option<&Route<MemberRef>>) -> bool {
        match route {
            Some(route) => route.is_current(&self.index),
            None => self.index.is_empty() || is_local(topic),
        }
    }

    /// Whether the links to all these brokers have room for messages that must not be lost.
    pub(crate) fn has_room(&self, thread: usize, route: &Route<MemberRef>) -> bool {
        let has_room = |member: &MemberRef| self.cluster.link(thread, *member).has_room();
        route.recipients().iter().all(|recipient| has_room(&recipient.subscriber))
            && route
                .groups()
                .iter()
                .all(|group| group.members().iter().any(|member| has_room(&member.subscriber)))
    }

    /// Sends messages to the other brokers that have subscriptions to their topic. A shared subscription that has members
    /// both here and there is served by one of the two; `is_served` tells whether by this broker. Returns the number of
    /// messages that had no room and may be lost (QoS 0).
    pub(crate) fn send(
        &self,
        origin: Origin<'_>,
        route: &Route<MemberRef>,
        messages: &mut Messages<'_>,
        is_served: impl Fn(&SharedGroup<MemberRef>) -> bool,
    ) -> usize {
        let mut lost = 0;
        for recipient in route.recipients() {
            let to = Destination::Sessions;
            lost += self.send_to(origin, recipient.subscriber, to, messages, 0..messages.len());
        }
        for group in route.groups().iter().filter(|group| !is_served(group)) {
            let name = format!("$share/{}/{}", group.name(), group.filter());
            for index in 0..messages.len() {
                let Some(member) = group.pick(Strategy::RoundRobin, 0, |_| Load::InFlight(0))
                else {
                    break;
                };
                let to = Destination::Shared(&name);
                lost += self.send_to(origin, member.subscriber, to, messages, index..index + 1);
            }
        }
        lost
    }

    fn send_to(
        &self,
        origin: Origin<'_>,
        member: MemberRef,
        to: Destination<'_>,
        messages: &mut Messages<'_>,
        range: std::ops::Range<usize>,
    ) -> usize {
        let link = self.cluster.link(origin.worker.id, member);
        let (count, may_be_lost) = (range.len(), messages.qos() == QoS::AtMostOnce);
        let (is_v5, packets) = messages.as_published(range);
        let run = barid_peers::Run::unnumbered(&self.tenant, origin.publisher, to, is_v5, packets);
        match link.add(run, count, may_be_lost) {
            Some(sequence) => {
                messages.note_sent(link.source(), sequence);
                0
            }
            None => count,
        }
    }
}

/// Whether messages of a topic stay on the broker.
fn is_local(topic: &str) -> bool {
    topic.starts_with('$') || is_reserved(topic)
}
