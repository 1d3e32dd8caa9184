//! Responses to the requests of one client.

use std::sync::Arc;

use barid_core::message::Publication;
use barid_core::session::OVERHEAD;
use barid_peers::ToldKind;
use mqtt_proto::{PropertiesBuf, Property, QoS};
use statestore_proto::{Reply, Version, properties};

use super::stamp::Stamp;
use crate::access::{Permissions, may_publish};
use crate::budget::Budget;
use crate::context::Context;
use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::publishing::Source;
use crate::router::Publisher;
use crate::run::Run;
use crate::session::SessionRef;
use crate::state_store::Guest;
use crate::tenant::Tenant;

/// Maximum size of the responses that are collected before they are published together, in bytes.
const TOGETHER_MAX: usize = 256 * 1024;

/// Cost of the responses to one connection, in bytes, after which other connections have their turn. Requests
/// for large values are small, so the bytes read from the client do not bound the work.
const PER_TURN: usize = 1024 * 1024;

/// The client whose requests are answered.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The tenant.
    pub tenant: &'a Arc<Tenant>,
    /// The client.
    pub whom: Whom<'a>,
}

/// The client whose requests are answered, as far as it matters for responses.
#[derive(Clone, Copy, Debug)]
pub enum Whom<'a> {
    /// A client of this broker.
    Here {
        /// The session of the client.
        session: &'a SessionRef,
        /// The permissions of the user; `None`: everything is allowed.
        permissions: Option<&'a Permissions>,
    },
    /// A client of another broker, which publishes the responses.
    Elsewhere(&'a Guest, ToldKind),
}

/// Responses to one topic, which are published together. Empty between two reads, except for the allocated
/// memory.
#[derive(Debug, Default)]
pub struct Responses {
    run: Run,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    properties: PropertiesBuf,
    /// Cost of all responses since the last call of [`Self::take_are_much`], in bytes.
    cost: usize,
}

impl Responses {
    /// Appends a response. Publishes the collected responses first if they have another topic or are too
    /// large. Returns the size of the response in a queue, in bytes.
    pub fn push(
        &mut self,
        context: &mut Context,
        requester: Asking<'_>,
        (topic, correlation): (&str, &[u8]),
        (reply, version, after): (&Reply<'_>, Option<Version>, &Commits),
    ) -> usize {
        if !self.run.is_empty() && (self.run.topic() != topic || self.buffer.len() >= TOGETHER_MAX)
        {
            self.publish(context, requester);
        }
        if self.run.is_empty() {
            // The response itself need not be stored: the change that it reports is durable, and a client
            // that loses its connection sends the request again.
            self.run.begin(topic, QoS::AtLeastOnce, false, true, DurabilityClass::Memory);
        }
        self.payload.clear();
        reply.encode(&mut self.payload);
        self.properties.clear();
        let mut put =
            |property| self.properties.push(property).expect("it came in a property, or is short");
        put(Property::CorrelationData(correlation));
        put(Property::UserProperty(properties::STATUS, properties::STATUS_OK));
        put(Property::UserProperty(properties::PROTOCOL_VERSION, "1.0"));
        if let Some(version) = version {
            put(Property::UserProperty(properties::TIMESTAMP, Stamp::of(version).as_str()));
        }
        let publication = Publication {
            topic,
            payload: &self.payload,
            properties: self.properties.as_properties().as_bytes(),
            qos: QoS::AtLeastOnce,
            retain: false,
            expires_at: None,
        };
        self.run.put(&publication, context.worker.now, &mut self.buffer);
        self.cost += self.payload.len();
        self.run.after.join(after);
        self.run.are_responses = true;
        let size = OVERHEAD + publication.size();
        self.payload.shrink_to(64 * 1024);
        size
    }

    /// Adds to the cost of a request that has done more work than its response has bytes: as much as copying
    /// `bytes` bytes.
    pub fn charge(&mut self, bytes: usize) {
        self.cost += bytes;
    }

    /// Whether the requests of this connection have cost so much that other connections should have their
    /// turn.
    pub fn are_much(&self) -> bool {
        self.cost > PER_TURN
    }

    /// Returns [`Self::are_much`], and resets the cost for the next turn.
    pub fn take_are_much(&mut self) -> bool {
        std::mem::take(&mut self.cost) > PER_TURN
    }

    /// Publishes the collected responses, or has the broker of the requester publish them.
    pub fn publish(&mut self, context: &mut Context, Asking { tenant, whom }: Asking<'_>) {
        if self.run.is_empty() {
            return;
        }
        match whom {
            Whom::Here { session, permissions } => {
                let to = (session, permissions);
                respond(context, tenant, to, &mut self.run, &mut self.buffer);
            }
            Whom::Elsewhere(guest, kind) => {
                let after = std::mem::take(&mut self.run.after);
                let mut messages = self.run.in_buffer(&mut self.buffer, context.worker.now);
                context.tell_guest(tenant, guest, kind, after, &mut messages);
            }
        }
        self.run.clear();
        self.buffer.clear();
        self.buffer.shrink_to(256 * 1024);
    }
}

/// Publishes responses with the permissions of the requester: to a topic to which the requester may not publish, they are
/// sent only to its own session.
pub(super) fn respond(
    context: &mut Context,
    tenant: &Arc<Tenant>,
    (session, permissions): (&SessionRef, Option<&Permissions>),
    run: &mut Run,
    buffer: &mut [u8],
) {
    let mut messages = run.in_buffer(buffer, context.worker.now);
    let (client, payload) = (&session.client_id, messages.publication(0).payload);
    let is_public =
        may_publish(permissions, client, messages.topic(), (messages.qos(), false), payload);
    if is_public {
        // The publisher is session 0, not the client: No Local must not keep the responses from the client.
        let publisher = Publisher { session: 0, client_id: &session.client_id, holder: None };
        let source = Source { enters_entities: false, ..Source::unattended(tenant, publisher) };
        let mut budget = Budget::from_now(context.engine.clock);
        context.publish(&source, run, buffer, &mut budget);
    } else {
        let Context { worker, router, .. } = context;
        router.publish_to(worker, session, &mut messages, |_| true);
        // A client is not held back because its responses fill a queue.
        router.take_full();
    }
}
