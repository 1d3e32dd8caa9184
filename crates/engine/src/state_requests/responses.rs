//! Responses to one client, on their way to the router.

use std::sync::Arc;

use barid_core::message::Publication;
use barid_core::session::OVERHEAD;
use mqtt_proto::{PropertiesBuf, Property, QoS};
use statestore_proto::{Reply, Version, properties};

use super::stamp::Stamp;
use crate::access::{Permissions, may_publish};
use crate::budget::Budget;
use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::lifecycle::Context;
use crate::router::Publisher;
use crate::run::Run;
use crate::session::SessionRef;
use crate::tenant::Tenant;

/// Bytes of responses that are held in memory before they are published.
const TOGETHER_MAX: usize = 256 * 1024;

/// Bytes of responses to one connection before others have their turn. Requests for large values are small.
const PER_TURN: usize = 1024 * 1024;

/// Whose requests are answered.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The tenant.
    pub tenant: &'a Arc<Tenant>,
    /// The session.
    pub session: &'a SessionRef,
    /// What the user may do; `None`: everything.
    pub permissions: Option<&'a Permissions>,
}

/// Responses to one topic, which leave together. Empty between two reads, but for its capacity.
#[derive(Debug, Default)]
pub struct Responses {
    run: Run,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    properties: PropertiesBuf,
    /// What all responses have cost since [`Self::take_are_much`] was last asked, in bytes.
    cost: usize,
}

impl Responses {
    /// Appends a response, and publishes those before if they go elsewhere. Answers how many bytes it takes
    /// in a queue.
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
            // What a response tells is durable itself, and who has gone asks again.
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
        let size = OVERHEAD + publication.size();
        self.payload.shrink_to(64 * 1024);
        size
    }

    /// A request has cost more than the bytes of its response tell: about as much as copying so many.
    pub fn charge(&mut self, bytes: usize) {
        self.cost += bytes;
    }

    /// Whether the requests of one connection have cost so much that others should have their turn.
    pub fn are_much(&self) -> bool {
        self.cost > PER_TURN
    }

    /// The same, for the last time.
    pub fn take_are_much(&mut self) -> bool {
        std::mem::take(&mut self.cost) > PER_TURN
    }

    /// Publishes what there is, with the rights of the requester: where it may not publish itself, only
    /// its own session can have subscribed.
    pub fn publish(
        &mut self,
        context: &mut Context,
        Asking { tenant, session, permissions }: Asking<'_>,
    ) {
        if self.run.is_empty() {
            return;
        }
        let Context { worker, router, engine, .. } = context;
        let mut messages = self.run.in_buffer(&mut self.buffer, worker.now);
        let (client, payload) = (&session.client_id, messages.publication(0).payload);
        let is_public = may_publish(permissions, client, messages.topic(), payload);
        if is_public {
            // Not the client publishes, so No Local does not keep it from its answers.
            let publisher = Publisher { session: 0, client_id: &session.client_id };
            let mut budget = Budget::from_now(engine.clock);
            router.publish(worker, tenant, publisher, &mut messages, false, &mut budget);
        } else {
            router.publish_to(worker, session, &mut messages, |_| true);
        }
        // Who waits for an answer has asked for it, and is not held back by it.
        router.take_full();
        self.run.clear();
        self.buffer.clear();
        self.buffer.shrink_to(256 * 1024);
    }
}
