//! A client: what MQTT demands of it (MQTT 5 §4.3, §4.4), and what it does of its own.

use std::collections::{BTreeMap, VecDeque};

use barid_core::ids::PacketId;

use crate::packets::messages::{MessageNumber, Packet, Verdict};

/// Messages that a client publishes before it waits for acknowledgements.
pub const IN_FLIGHT_MAX: usize = 5;

/// A client with its half of the session.
pub struct Client {
    /// Session Expiry Interval in milliseconds; none: never.
    pub expiry: Option<u64>,
    pub receive_maximum: u16,
    method: Method,
    /// Whether CONNACK has come on its connection.
    pub connected: bool,
    /// It has asked for a new session and not yet heard that it has one.
    pub wants_clean: bool,
    /// Messages published and not yet acknowledged, the oldest first.
    in_flight: VecDeque<InFlight>,
    /// QoS 2 messages received and not released; with method A also the message.
    received: BTreeMap<PacketId, Option<Received>>,
    /// The SUBSCRIBE or UNSUBSCRIBE that has not been answered: the index of the filter.
    request: Option<usize>,
}

/// How a client receives QoS 2 (MQTT 5 §4.3.3, figure 4.3): it takes a message for received when PUBREL
/// comes (A), or when PUBLISH comes (B).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    A,
    B,
}

#[derive(Clone, Copy)]
struct InFlight {
    id: PacketId,
    /// The PUBLISH, as it was sent first.
    publish: Packet,
    /// PUBREC has come.
    released: bool,
}

type Received = (MessageNumber, bool);

/// What becomes of a packet that a client gets.
#[derive(Clone, Copy, Debug)]
pub enum Heard {
    /// Session Present, or a refusal; which session it is, and whether it is noted that the client is back.
    Connected(Option<bool>, u64, bool),
    /// A message, its QoS and its RETAIN flag.
    Message(MessageNumber, u8, bool),
    /// A message it published is acknowledged.
    Acknowledged(MessageNumber, Verdict),
    /// A request for a filter is answered.
    Subscribed(usize, Verdict),
    /// A filter is not subscribed to, and whether it was.
    Unsubscribed(usize, bool),
    /// A QoS 2 message it published is complete.
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

    /// The CONNECT that it sends.
    pub fn connect(&self, will: Option<MessageNumber>) -> Packet {
        let (expiry, receive_maximum) = (self.expiry, self.receive_maximum);
        Packet::Connect { clean_start: self.wants_clean, expiry, receive_maximum, will }
    }

    /// The connection has broken. What was asked for and not answered is asked for no more.
    pub fn disconnected(&mut self) {
        self.connected = false;
        self.request = None;
    }

    /// Its session is over: it forgets what belongs to it.
    pub fn forget_session(&mut self) {
        self.in_flight.clear();
        self.received.clear();
    }

    /// After CONNACK, what was not acknowledged is sent again in its old order (MQTT 5 §4.4).
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

    /// Whether it may publish with QoS 1 or 2.
    pub fn may_publish(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Whether it waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.request.is_none()
    }

    /// The smallest packet identifier that is free, as many libraries give it.
    pub fn free_id(&self) -> PacketId {
        let used = |id: &PacketId| self.in_flight.iter().any(|in_flight| in_flight.id == *id);
        (1..).find(|id| !used(id)).expect("few are used")
    }

    /// It publishes; what has QoS 1 or 2 is kept until it is acknowledged.
    pub fn publish(&mut self, publish: Packet) {
        if let Packet::Publish { qos: 1..=2, id, .. } = publish {
            self.in_flight.push_back(InFlight { id, publish, released: false });
        }
    }

    /// It asks for a filter, or not to have it any more. False: it still waits for an answer.
    pub fn request(&mut self, filter: usize) -> bool {
        let may = self.request.is_none();
        if may {
            self.request = Some(filter);
        }
        may
    }

    /// A packet has come. What it means, and what the client answers.
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
