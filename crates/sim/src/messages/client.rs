//! A client: its half of the MQTT protocol (MQTT 5 §4.3, §4.4).

use std::collections::{BTreeMap, VecDeque};

use barid_core::ids::PacketId;

use crate::packets::messages::{MessageNumber, Packet, Verdict};

/// Maximum number of unacknowledged messages of a client. At this number it publishes no more with QoS 1 or 2.
pub const IN_FLIGHT_MAX: usize = 5;

/// A client with its half of the session.
pub struct Client {
    /// Session Expiry Interval in milliseconds; `None`: the session does not expire.
    pub expiry: Option<u64>,
    pub receive_maximum: u16,
    method: Method,
    /// Whether CONNACK has arrived on the current connection.
    pub connected: bool,
    /// Whether the client has asked for a new session and has not got its CONNACK yet.
    pub wants_clean: bool,
    /// Messages published and not acknowledged yet, the oldest first.
    in_flight: VecDeque<InFlight>,
    /// QoS 2 messages received and not released. Method A keeps the message, too.
    received: BTreeMap<PacketId, Option<Received>>,
    /// Index of the filter in the SUBSCRIBE or UNSUBSCRIBE that is not answered yet.
    request: Option<usize>,
}

/// The way in which a client receives QoS 2 (MQTT 5 §4.3.3, figure 4.3): it takes a message as received when
/// PUBREL arrives (A), or when PUBLISH arrives (B).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    A,
    B,
}

#[derive(Clone, Copy)]
struct InFlight {
    id: PacketId,
    /// The PUBLISH as it was first sent.
    publish: Packet,
    /// Whether PUBREC has arrived.
    released: bool,
}

type Received = (MessageNumber, bool);

/// The meaning of a packet for the client that gets it.
#[derive(Clone, Copy, Debug)]
pub enum Heard {
    /// CONNACK: Session Present, or `None` if refused; the number of the session, and whether the return of the
    /// client is noted.
    Connected(Option<bool>, u64, bool),
    /// A message, its QoS and its RETAIN flag.
    Message(MessageNumber, u8, bool),
    /// A message of the client is acknowledged.
    Acknowledged(MessageNumber, Verdict),
    /// A SUBSCRIBE for a filter is answered.
    Subscribed(usize, Verdict),
    /// An UNSUBSCRIBE for a filter is answered, and whether the subscription existed.
    Unsubscribed(usize, bool),
    /// A QoS 2 message of the client is complete.
    Completed,
    /// The broker has closed the connection.
    Disconnected,
}

impl Client {
    pub fn new(expiry: Option<u64>, receive_maximum: u16, method: Method) -> Self {
        Self {
            expiry,
            receive_maximum,
            method,
            connected: false,
            wants_clean: false,
            in_flight: VecDeque::new(),
            received: BTreeMap::new(),
            request: None,
        }
    }

    /// Returns the CONNECT that the client sends.
    pub fn connect(&self, will: Option<MessageNumber>) -> Packet {
        let (expiry, receive_maximum) = (self.expiry, self.receive_maximum);
        Packet::Connect { clean_start: self.wants_clean, expiry, receive_maximum, will }
    }

    /// Handles the loss of the connection. A SUBSCRIBE or UNSUBSCRIBE that was not answered is not repeated.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.request = None;
    }

    /// Forgets the state of the client's session.
    pub fn forget_session(&mut self) {
        self.in_flight.clear();
        self.received.clear();
    }

    /// Returns the packets to send after CONNACK: those that were not acknowledged, in their original order
    /// (MQTT 5 §4.4).
    pub fn resend(&self) -> Vec<Packet> {
        let again = |in_flight: &InFlight| match in_flight.publish {
            _ if in_flight.released => Packet::PubRel(in_flight.id),
            Packet::Publish { message, topic, qos, id, retain, len, expiry, .. } => {
                Packet::Publish { message, topic, qos, id, dup: true, retain, len, expiry }
            }
            other => other,
        };
        self.in_flight.iter().map(again).collect()
    }

    /// Whether the client may publish with QoS 1 or 2.
    pub fn may_publish(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Whether the client waits for no answer.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.request.is_none()
    }

    /// Returns the smallest free packet identifier, as many client libraries do.
    pub fn free_id(&self) -> PacketId {
        let used = |id: &PacketId| self.in_flight.iter().any(|in_flight| in_flight.id == *id);
        (1..).find(|id| !used(id)).expect("few are used")
    }

    /// Takes note of a PUBLISH that the client sends. A message with QoS 1 or 2 is kept until it is
    /// acknowledged.
    pub fn publish(&mut self, publish: Packet) {
        if let Packet::Publish { qos: 1..=2, id, .. } = publish {
            self.in_flight.push_back(InFlight { id, publish, released: false });
        }
    }

    /// Takes note that the client sends a SUBSCRIBE or UNSUBSCRIBE for a filter. Returns false if another one
    /// is not answered yet.
    pub fn request(&mut self, filter: usize) -> bool {
        let may = self.request.is_none();
        if may {
            self.request = Some(filter);
        }
        may
    }

    /// Handles a packet. Returns its meaning, and the answer of the client.
    pub fn receive(&mut self, packet: Packet) -> (Option<Heard>, Option<Packet>) {
        match packet {
            Packet::ConnAck { present, birth, is_noted } => {
                (Some(Heard::Connected(present, birth, is_noted)), None)
            }
            Packet::Publish { message, qos: 0, retain, .. } => {
                (Some(Heard::Message(message, 0, retain)), None)
            }
            Packet::Publish { message, qos: 1, retain, id, .. } => {
                (Some(Heard::Message(message, 1, retain)), Some(Packet::PubAck(id, Verdict::Done)))
            }
            Packet::Publish { message, retain, id, .. } => {
                let answer = Some(Packet::PubRec(id, Verdict::Done));
                if self.received.contains_key(&id) {
                    return (None, answer);
                }
                let kept = (self.method == Method::A).then_some((message, retain));
                self.received.insert(id, kept);
                (kept.is_none().then_some(Heard::Message(message, 2, retain)), answer)
            }
            Packet::PubRel(id) => {
                let kept = self.received.remove(&id).flatten();
                let heard = kept.map(|(message, retain)| Heard::Message(message, 2, retain));
                (heard, Some(Packet::PubComp(id)))
            }
            Packet::PubAck(id, verdict) => (self.acknowledged(id, verdict, 1), None),
            Packet::PubRec(id, verdict) => {
                let heard = self.acknowledged(id, verdict, 2);
                (heard, (verdict == Verdict::Done).then_some(Packet::PubRel(id)))
            }
            Packet::PubComp(id) => {
                self.in_flight.retain(|in_flight| !(in_flight.released && in_flight.id == id));
                (Some(Heard::Completed), None)
            }
            Packet::SubAck(_, verdict) => {
                (self.request.take().map(|filter| Heard::Subscribed(filter, verdict)), None)
            }
            Packet::UnsubAck(_, existed) => {
                (self.request.take().map(|filter| Heard::Unsubscribed(filter, existed)), None)
            }
            Packet::Disconnect => (Some(Heard::Disconnected), None),
            Packet::Connect { .. } | Packet::Subscribe(..) | Packet::Unsubscribe(..) => {
                unreachable!("a broker sends no such packet")
            }
        }
    }

    fn acknowledged(&mut self, id: PacketId, verdict: Verdict, level: u8) -> Option<Heard> {
        let at = self.in_flight.iter().position(|in_flight| {
            let Packet::Publish { qos, .. } = in_flight.publish else { return false };
            in_flight.id == id && qos == level && !in_flight.released
        })?;
        let Packet::Publish { message, .. } = self.in_flight[at].publish else { return None };
        if level == 2 && verdict == Verdict::Done {
            self.in_flight[at].released = true;
        } else {
            self.in_flight.remove(at);
        }
        Some(Heard::Acknowledged(message, verdict))
    }
}
