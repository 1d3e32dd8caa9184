//! A client that sends packets and waits for the broker's packets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_engine::ids::ConnectionId;
use mqtt_proto::{
    Ack, Connect, FixedHeader, MAX_PACKET_LEN, Packet, PacketId, PacketType, Properties,
    PropertiesBuf, Property, Publish, QoS, ReasonCode, RetainHandling, Subscribe, SubscribeFilter,
    SubscribeFiltersBuf, SubscriptionOptions, Version,
};

use shuttle::thread;

use crate::Broker;
use crate::io::{IoThread, Post};
use crate::wire::TestWire;

/// Bytes of free room that a client makes at each read, unless it reads slowly: more than a test needs.
const PLENTY: usize = 1 << 20;

/// A connection of a client.
pub struct Client {
    id: ConnectionId,
    io: Arc<IoThread>,
    wire: Arc<TestWire>,
    room: usize,
    unread: Vec<u8>,
    heard: VecDeque<Heard>,
}

/// A packet of the broker, reduced to what the tests need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// CONNACK with Session Present.
    Connected(bool),
    Subscribed,
    /// A message: payload, packet identifier (0 with QoS 0) and DUP.
    Message(String, u16, bool),
    /// An acknowledgement of this type, with this packet identifier.
    Acknowledged(PacketType, u16),
    /// An acknowledgement of this type whose Reason Code is an error.
    Refused(PacketType, u16),
    NotConnected,
    /// The connection has ended, with or without DISCONNECT.
    Disconnected,
}

impl Client {
    pub(crate) fn new(io: Arc<IoThread>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = ConnectionId(LAST.fetch_add(1, Ordering::Relaxed));
        let wire = Arc::new(TestWire::new(PLENTY));
        Self { id, io, wire, room: PLENTY, unread: Vec::new(), heard: VecDeque::new() }
    }

    /// Limits the room to this many bytes, which each read of the client makes free again.
    pub fn read_slowly(&mut self, room: usize) {
        self.room = room;
        self.wire.make_room(room);
    }

    /// Opens a session that does not expire. Returns Session Present.
    pub fn open(&mut self, client_id: &str) -> bool {
        self.try_open(client_id).unwrap_or_else(|| panic!("{client_id} is refused"))
    }

    /// Opens a session that does not expire. Returns Session Present, or `None` if the broker refuses.
    pub fn try_open(&mut self, client_id: &str) -> Option<bool> {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::SessionExpiryInterval(u32::MAX)).unwrap();
        self.send(&Packet::Connect(Connect {
            version: Version::V5,
            is_bridge: false,
            clean_start: false,
            keep_alive: 0,
            client_id,
            will: None,
            username: None,
            password: None,
            properties: properties.as_properties(),
        }));
        match self.hear() {
            Heard::Connected(present) => Some(present),
            Heard::NotConnected | Heard::Disconnected => None,
            other => panic!("{client_id} hears {other:?}"),
        }
    }

    /// Subscribes, and waits for SUBACK.
    pub fn subscribe(&mut self, filter: &str, qos: QoS) {
        self.ask_to_subscribe(filter, qos);
        assert_eq!(self.hear(), Heard::Subscribed);
    }

    /// Subscribes without waiting for SUBACK.
    pub fn ask_to_subscribe(&mut self, filter: &str, qos: QoS) {
        let options = SubscriptionOptions {
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        let filters = SubscribeFiltersBuf::new([SubscribeFilter { filter, options }]).unwrap();
        self.send(&Packet::Subscribe(Subscribe {
            packet_id: PacketId::new(1).unwrap(),
            properties: Properties::default(),
            filters: filters.as_filters(),
        }));
    }

    /// Publishes a message without waiting for its acknowledgement.
    pub fn publish(&mut self, topic: &str, payload: &str, qos: QoS, id: u16) {
        self.repeat(topic, payload, qos, id, false);
    }

    /// Publishes a message with RETAIN and QoS 0.
    pub fn retain(&mut self, topic: &str, payload: &str) {
        self.send(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: true,
            topic,
            packet_id: None,
            properties: Properties::default(),
            payload: payload.as_bytes(),
        }));
    }

    /// Publishes a message, which may have been sent before (`dup`), without waiting for its acknowledgement.
    pub fn repeat(&mut self, topic: &str, payload: &str, qos: QoS, id: u16, dup: bool) {
        self.send(&Packet::Publish(Publish {
            dup,
            qos,
            retain: false,
            topic,
            packet_id: PacketId::new(id),
            properties: Properties::default(),
            payload: payload.as_bytes(),
        }));
    }

    /// Sends an acknowledgement of this type.
    pub fn acknowledge(&mut self, kind: PacketType, id: u16) {
        let packet_id = PacketId::new(id).unwrap();
        let (reason, properties) = (ReasonCode::Success, Properties::default());
        let mut bytes = Vec::new();
        Ack { packet_id, reason, properties }.encode(kind, Version::V5, &mut bytes).unwrap();
        self.post(bytes);
    }

    /// Moves the connection to another IO thread of the broker.
    pub fn move_to(&self, broker: &Broker, io_thread: usize) {
        self.io.post(Post::Move(self.id, Arc::clone(&broker.io[io_thread])));
    }

    /// Ends the connection without DISCONNECT.
    pub fn lose(self) {
        self.io.post(Post::Lost(self.id));
    }

    /// Waits for the next packet. Its message may have to be read back from the store.
    pub fn hear_stored(&mut self, broker: &Broker) -> Heard {
        while self.heard.is_empty() && self.wire.is_empty() {
            broker.load();
            thread::yield_now();
        }
        self.hear()
    }

    /// Waits for the next packet.
    pub fn hear(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return heard;
            }
            let Some((bytes, wants_room)) = self.wire.read(self.room) else {
                return Heard::Disconnected;
            };
            if wants_room {
                self.io.post(Post::Room(self.id));
            }
            self.unread.extend_from_slice(&bytes);
            while let Some((heard, len)) = decode(&self.unread) {
                self.unread.drain(..len);
                self.heard.push_back(heard);
            }
        }
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes).unwrap();
        self.post(bytes);
    }

    fn post(&mut self, bytes: Vec<u8>) {
        self.io.post(Post::Bytes(self.id, bytes, Arc::clone(&self.wire)));
    }
}

/// Decodes the first packet in `bytes`. Returns the packet and its length, or `None` if it is incomplete.
fn decode(bytes: &[u8]) -> Option<(Heard, usize)> {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN).expect("the broker sends MQTT")?;
    let packet = bytes.get(..header.packet_len())?;
    let body = &packet[header.header_len..];
    let heard = match Packet::decode(Version::V5, header, body).expect("the broker sends MQTT") {
        Packet::ConnAck(connack) if connack.reason.is_error() => Heard::NotConnected,
        Packet::ConnAck(connack) => Heard::Connected(connack.session_present),
        Packet::SubAck(_) => Heard::Subscribed,
        Packet::Publish(publish) => {
            let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
            Heard::Message(payload, publish.packet_id.map_or(0, PacketId::get), publish.dup)
        }
        Packet::PubAck(ack) => acknowledged(PacketType::PubAck, &ack),
        Packet::PubRec(ack) => acknowledged(PacketType::PubRec, &ack),
        Packet::PubRel(ack) => acknowledged(PacketType::PubRel, &ack),
        Packet::PubComp(ack) => acknowledged(PacketType::PubComp, &ack),
        Packet::Disconnect(_) => Heard::Disconnected,
        other => panic!("nobody has asked for {other:?}"),
    };
    Some((heard, packet.len()))
}

fn acknowledged(kind: PacketType, ack: &Ack<'_>) -> Heard {
    let told = if ack.reason.is_error() { Heard::Refused } else { Heard::Acknowledged };
    told(kind, ack.packet_id.get())
}
