//! The tap of one connection: finds messages with a context, and their acknowledgements.

use std::collections::HashMap;
use std::sync::Arc;

use barid_engine::tapping::{Protocol, Tap, Tapped};
use parking_lot::Mutex;

use super::context::TraceContext;
use super::span::{Direction, Span, Step, Value};
use super::{Tenant, amqp, mqtt};
use crate::framer::Framer;
use crate::system::unix_nanoseconds as now;

/// Number of bytes of a packet or frame that are looked at. A context behind them is not found.
const HEAD_MAX: usize = 4 * 1024;

/// Maximum number of spans of one connection that have not ended. More are skipped.
const PENDING_MAX: usize = 256;

/// Maximum number of links, or of topic aliases, whose names are remembered.
const NAMES_MAX: usize = 512;

/// Maximum length of a name in a span, in bytes: of a client, a topic or an entity. The rest is cut off.
const NAME_MAX: usize = 256;

/// The number by which a message is acknowledged: a Packet Identifier, or a channel and a delivery id.
pub type Key = u64;

/// What a packet or frame is about.
pub enum Seen<'a> {
    /// A link begins, on which the side that says so sends.
    Link { channel: u16, handle: u32, address: Box<str> },
    /// A message.
    Message(Message<'a>),
    /// A message on a link.
    Transfer { channel: u16, handle: u32, message: Message<'a> },
    /// Acknowledges messages that have passed in the other direction.
    Answer { first: Key, last: Key, error: Option<&'static str>, outcome: (&'static str, Value) },
}

pub struct Message<'a> {
    /// `None`: the message has none, or its sender does not record the trace.
    pub context: Option<TraceContext>,
    pub alias: Option<u16>,
    /// The topic; empty: that of the alias or link.
    pub destination: &'a str,
    /// `None`: it is not acknowledged.
    pub key: Option<Key>,
    pub fact: (&'static str, Value),
}

#[derive(Debug)]
pub struct Connection {
    tenant: Arc<Tenant>,
    client: Arc<str>,
    protocol: Protocol,
    sent: Mutex<Framer>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Topics by alias, and addresses by channel and handle.
    names: HashMap<(Direction, u64), Box<str>>,
    pending: HashMap<(Direction, Key), Pending>,
}

/// A message that is not acknowledged yet.
#[derive(Debug)]
struct Pending {
    span: Span,
    /// Since when the acknowledgement waits, in nanoseconds since the Unix epoch.
    waits_since: Option<u64>,
}

impl Connection {
    pub fn new(tenant: &Arc<Tenant>, tapped: &Tapped<'_>) -> Self {
        let protocol = tapped.protocol;
        let sent = Mutex::new(Framer::new(protocol, HEAD_MAX));
        let (tenant, client) = (Arc::clone(tenant), cut(tapped.client).into());
        Self { tenant, client, protocol, sent, state: Mutex::default() }
    }

    /// Looks at the packets or frames that end in `bytes`.
    fn look(&self, direction: Direction, framer: &mut Framer, bytes: &[u8]) {
        framer.feed(bytes, |head, bytes| {
            let mut shorter = Vec::new();
            let seen = match self.protocol {
                Protocol::Mqtt(version) => mqtt::read(version, direction, head, &mut shorter),
                Protocol::Amqp => amqp::read(direction, head),
            };
            match seen {
                None => {}
                Some(Seen::Link { channel, handle, address }) => {
                    self.state.lock().name(direction, link(channel, handle), &address);
                }
                Some(Seen::Message(message)) => self.begin(direction, bytes, None, &message),
                Some(Seen::Transfer { channel, handle, message }) => {
                    self.begin(direction, bytes, Some(link(channel, handle)), &message);
                }
                Some(Seen::Answer { first, last, error, outcome }) => {
                    self.answer(direction.opposite(), (first, last), error, outcome);
                }
            }
        });
    }

    /// Begins the span of a message, if it is recorded.
    fn begin(&self, direction: Direction, bytes: usize, link: Option<u64>, message: &Message<'_>) {
        let Message { context, alias, destination, key, .. } = *message;
        let number = alias.map(u64::from).or(link);
        let is_defined = !destination.is_empty();
        if context.is_none() && !(number.is_some() && is_defined) {
            return;
        }
        let mut state = self.state.lock();
        if let (Some(number), true) = (number, is_defined) {
            state.name(direction, number, destination);
        }
        let Some(context) = context.filter(|context| self.tenant.records(context)) else { return };
        let known = number.and_then(|number| state.names.get(&(direction, number)).cloned());
        let destination =
            if is_defined { cut(destination).into() } else { known.unwrap_or_default() };
        let (start, spans) = (now(), &self.tenant.spans);
        let span = Span {
            trace: context.trace,
            parent: context.parent,
            id: spans.random.bytes(),
            step: match direction {
                Direction::Received => Step::Publish,
                Direction::Sent => Step::Deliver,
            },
            tenant: Arc::clone(&self.tenant.name),
            client: Arc::clone(&self.client),
            system: if self.protocol == Protocol::Amqp { "amqp" } else { "mqtt" },
            destination,
            bytes,
            start,
            end: start,
            facts: vec![message.fact],
            error: None,
        };
        match key {
            None => spans.end(span),
            Some(_) if state.pending.len() >= PENDING_MAX => spans.skip(),
            Some(key) => {
                let pending = Pending { span, waits_since: None };
                state.pending.insert((direction, key), pending);
            }
        }
    }

    /// Ends the spans of messages that are acknowledged.
    fn answer(
        &self,
        direction: Direction,
        (first, last): (Key, Key),
        error: Option<&'static str>,
        outcome: (&'static str, Value),
    ) {
        let mut state = self.state.lock();
        if state.pending.is_empty() {
            return;
        }
        let ended = state
            .pending
            .extract_if(|(way, key), _| *way == direction && (first..=last).contains(key));
        for (_, mut pending) in ended {
            pending.span.facts.push(outcome);
            self.end(pending, error.map(Into::into));
        }
    }

    /// Ends the span of a message, and the one for the time in which its acknowledgement has waited.
    fn end(&self, Pending { mut span, waits_since }: Pending, error: Option<String>) {
        let spans = &self.tenant.spans;
        (span.end, span.error) = (now(), error);
        if let Some(start) = waits_since {
            let (id, parent) = (spans.random.bytes(), span.id);
            let facts = Vec::new();
            spans.end(Span { step: Step::Commit, id, parent, start, facts, ..span.clone() });
        }
        spans.end(span);
    }
}

impl State {
    fn name(&mut self, direction: Direction, number: u64, name: &str) {
        if self.names.len() < NAMES_MAX || self.names.contains_key(&(direction, number)) {
            self.names.insert((direction, number), cut(name).into());
        }
    }
}

impl Tap for Connection {
    fn received(&self, bytes: &[u8]) {
        self.look(Direction::Received, &mut Framer::new(self.protocol, HEAD_MAX), bytes);
    }

    fn sent(&self, bytes: &[u8]) {
        self.look(Direction::Sent, &mut self.sent.lock(), bytes);
    }

    fn waits(&self) {
        let mut state = self.state.lock();
        let received = state.pending.iter_mut().filter(|((way, _), _)| *way == Direction::Received);
        for (_, pending) in received.filter(|(_, pending)| pending.waits_since.is_none()) {
            pending.waits_since = Some(now());
        }
    }

    fn ended(&self, why: &str) {
        for (_, pending) in self.state.lock().pending.drain() {
            self.end(pending, Some(why.into()));
        }
    }
}

/// Returns the beginning of a name.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_MAX)]
}

/// The number of a link, for one side.
fn link(channel: u16, handle: u32) -> u64 {
    u64::from(channel) << 32 | u64::from(handle)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use barid_engine::ids::ConnectionId;
    use barid_engine::random::Random;
    use barid_engine::tapping::{MessageTracing as _, Tap};
    use mqtt_proto::{PacketId, PropertiesBuf, Property, Publish, QoS, Version};

    use super::*;
    use crate::message_traces::{MessageTraces, Spans};

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn tap() -> (Arc<dyn Tap>, Arc<Spans>) {
        let spans = Arc::new(Spans::new(1.0, u32::MAX, Random(|bytes| bytes.fill(1))));
        let tracer = MessageTraces(Arc::clone(&spans)).tracer_of("acme");
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (connection, protocol) = (ConnectionId(1), Protocol::Mqtt(Version::V5));
        let tapped = Tapped { client: "c", connection, protocol, peer, begins: true };
        (tracer.tap(&tapped), spans)
    }

    fn publish(topic: &str, id: u16) -> Vec<u8> {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::UserProperty("traceparent", TRACEPARENT)).unwrap();
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic,
            packet_id: PacketId::new(id),
            properties: properties.as_properties(),
            payload: b"payload",
        };
        let mut bytes = Vec::new();
        publish.encode(Version::V5, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_a_client_names_takes_bounded_memory() {
        let (tap, spans) = tap();
        let topic = "é".repeat(20_000);
        for id in 1..=2_000 {
            tap.received(&publish(&topic, id));
        }
        tap.ended("gone");
        let ended = spans.take();
        // Of a topic that is longer than what is looked at, the context is not found either.
        assert_eq!((ended.len(), spans.skipped()), (0, 0));
        for id in 1..=2_000 {
            tap.received(&publish(&topic[..1_000], id));
        }
        tap.ended("gone");
        let ended = spans.take();
        assert_eq!((ended.len(), spans.skipped()), (PENDING_MAX, 2_000 - PENDING_MAX as u64));
        assert!(ended.iter().all(|span| span.destination.len() == NAME_MAX));
        assert!(ended.iter().all(|span| span.error.as_deref() == Some("gone")));
    }

    #[test]
    fn bytes_that_are_no_packets_do_no_harm() {
        let (tap, spans) = tap();
        let packet = publish("a", 1);
        for end in 0..packet.len() {
            tap.received(&packet[..end]);
            let mut broken = packet.clone();
            broken[end] ^= 0xFF;
            tap.received(&broken);
            tap.sent(&broken);
        }
        tap.ended("gone");
        assert!(spans.take().len() <= 2 * packet.len());
    }

    #[test]
    fn an_acknowledgement_ends_the_span_of_its_message_only() {
        let (tap, spans) = tap();
        for id in [1, 2] {
            tap.received(&publish("a", id));
            tap.sent(&publish("b", id));
        }
        tap.sent(&[0x40, 2, 0, 1]);
        let ended = spans.take();
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].step, &*ended[0].destination), (Step::Publish, "a"));
        tap.received(&[0x40, 3, 0, 2, 0x87]);
        let ended = spans.take();
        assert_eq!((ended[0].step, &*ended[0].destination), (Step::Deliver, "b"));
        assert_eq!(ended[0].error.as_deref(), Some("Not authorized"));
        // The first has waited, and the second is received later.
        tap.waits();
        tap.received(&publish("c", 3));
        tap.sent(&[0x40, 2, 0, 3]);
        tap.sent(&[0x40, 2, 0, 2]);
        let [third, commit, second] = &spans.take()[..] else { panic!("three spans") };
        assert_eq!(
            (third.step, commit.step, second.step),
            (Step::Publish, Step::Commit, Step::Publish)
        );
        assert_eq!((commit.parent, &*commit.destination), (second.id, "a"));
        assert!(second.start <= commit.start && commit.end == second.end);
    }
}
