//! Publishing: one call hands a run of messages to all targets of their topic.
//!
//! Entities come first, because they can refuse a message: then the publisher is told, and no session gets
//! the message. Next, the last message becomes the retained message of the topic, if RETAIN is set. Sessions
//! come last, so that a client that subscribes in the meantime gets the retained message.

use std::sync::Arc;

use barid_core::message::Publication;
use barid_core::topic_index::Route;
use mqtt_proto::QoS;

use crate::bindings::{self, Refused};
use crate::budget::Budget;
use crate::context::Context;
use crate::durable::Commits;
use crate::faults::{Rule, holds};
use crate::retaining::{may_retain, retain};
use crate::router::Publisher;
use crate::run::Run;
use crate::session::SessionRef;
use crate::targets::Targets;
use crate::tenant::Tenant;

/// The origin of messages.
pub struct Source<'a> {
    /// The tenant.
    pub tenant: &'a Arc<Tenant>,
    /// The publisher.
    pub publisher: Publisher<'a>,
    /// Whether bindings take the messages into entities. False for messages that come from an entity, because
    /// they could go round in a loop.
    pub enters_entities: bool,
    /// Whether the publisher is told that a message was refused. If so, no target gets a refused message.
    /// Otherwise the message is dropped for the target that refuses it, and the other targets get it.
    pub is_told: bool,
    /// Whether nothing else is published before the router's next flush, so that sockets are written to at once.
    pub is_alone: bool,
}

/// The result of publishing a run.
#[derive(Default)]
pub struct Published {
    /// The targets. `None`: no target got any of the messages.
    pub targets: Option<Arc<Targets>>,
    /// Whether an entity has taken any of the messages.
    pub is_taken: bool,
    /// Messages that an entity refused, with the reasons, and the Packet Identifiers of all messages. The run
    /// no longer contains the refused messages.
    pub refused: Option<(Refused, Vec<u16>)>,
    /// Sessions that got the messages although their queues are full: the publisher is to be held back.
    pub full: Vec<SessionRef>,
}

impl<'a> Source<'a> {
    /// Creates the source of Will Messages and of the broker's own messages: no publisher is told of
    /// refusals.
    pub fn unattended(tenant: &'a Arc<Tenant>, publisher: Publisher<'a>) -> Self {
        Self { tenant, publisher, enters_entities: true, is_told: false, is_alone: false }
    }
}

impl Published {
    /// Whether the topic has no subscriber, and no entity has taken a message.
    pub fn is_unmatched(&self) -> bool {
        let is_empty = |targets: &Arc<Targets>| {
            targets.route().is_empty() && targets.remote().is_none_or(Route::is_empty)
        };
        !self.is_taken && self.targets.as_ref().is_some_and(is_empty)
    }
}

impl Context {
    /// Publishes a run that lies in `bytes`. Afterwards, the run contains the commits that must be durable
    /// before the messages count as published. When the budget is spent, the remaining messages are written
    /// with the router's next flush.
    pub fn publish(
        &mut self,
        source: &Source<'_>,
        run: &mut Run,
        bytes: &mut [u8],
        budget: &mut Budget,
    ) -> Published {
        let Source { tenant, publisher, is_told, .. } = *source;
        let mut published = Published::default();
        let mut targets = self.router.targets(tenant, run.topic());
        if source.enters_entities && !targets.bindings().is_empty() {
            let mut messages = run.in_buffer(bytes, self.worker.now);
            // Messages that cannot be retained are refused below, so no entity may get them.
            if !(is_told && messages.retain())
                || may_retain(tenant, publisher.holder, &mut messages)
            {
                self.enter(source, &targets, run, bytes, &mut published);
            }
            if run.is_empty() {
                return published;
            }
        }
        let mut messages = run.in_buffer(bytes, self.worker.now);
        if messages.retain() {
            if let Err(reason) = retain(tenant, publisher.holder, &mut messages) {
                let (topic, client) = (messages.topic(), publisher.client_id);
                tenant.dropped(&self.worker, reason, Some(topic), client);
                if is_told {
                    return published;
                }
            }
            // A client that subscribed before the message was retained has perhaps got the previous retained
            // message: it must be among the targets.
            if holds(Rule::RouteWhenRetained) {
                targets = self.router.targets(tenant, messages.topic());
            }
        }
        let (worker, turn) = (&self.worker, (source.is_alone, budget));
        self.router.deliver(worker, tenant, publisher, &targets, &mut messages, turn);
        published.full = self.router.take_full();
        published.targets = Some(targets);
        published
    }

    /// Publishes one message that does not come from a connection's buffer and whose publisher is not told of
    /// refusals. Returns the commits that must be durable before the message counts as published.
    pub fn publish_message(
        &mut self,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        message: &Publication<'_>,
    ) -> Commits {
        let class = tenant.durability().of(message.topic);
        let (mut run, mut buffer) = Run::of(message, class, self.worker.now);
        let mut budget = Budget::from_now(self.engine.clock);
        let source = Source::unattended(tenant, publisher);
        self.publish(&source, &mut run, &mut buffer, &mut budget);
        run.into_commits()
    }

    /// Sends messages that were published at another broker to the entities that bindings name. Their publisher is not told
    /// what an entity refuses.
    pub(crate) fn enter_here(
        &mut self,
        tenant: &Arc<Tenant>,
        publisher: Publisher<'_>,
        run: &mut Run,
        bytes: &mut [u8],
    ) {
        let targets = self.router.targets(tenant, run.topic());
        if !run.is_empty() && !targets.bindings().is_empty() {
            let source = Source::unattended(tenant, publisher);
            self.enter(&source, &targets, run, bytes, &mut Published::default());
        }
    }

    /// Sends the messages to the entities that bindings name, and removes the refused ones from the run.
    fn enter(
        &self,
        source: &Source<'_>,
        targets: &Targets,
        run: &mut Run,
        bytes: &mut [u8],
        published: &mut Published,
    ) {
        let Source { tenant, publisher, is_told, .. } = *source;
        let messages = run.in_buffer(bytes, self.worker.now);
        let is_told = is_told && messages.qos() != QoS::AtMostOnce;
        let entered = bindings::enter(
            targets.bindings(),
            (&self.worker, self.wall()),
            (&tenant.account, tenant.used_entities()),
            publisher.client_id,
            &messages,
            is_told,
        );
        published.is_taken = entered.taken;
        if !entered.refused.is_empty() {
            let ids = run.ids.clone();
            let place = |index| entered.refused.binary_search_by_key(&index, |(of, _)| *of);
            run.remove(|index| place(index).is_ok());
            published.refused = Some((entered.refused, ids));
        }
        if !run.is_empty() {
            run.in_buffer(bytes, self.worker.now).note_entered(&entered.commits);
        }
    }
}
