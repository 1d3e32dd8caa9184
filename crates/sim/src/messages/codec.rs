//! Encoding and decoding of control packets as MQTT 5.

use mqtt_proto::{
    Ack, Connect, FixedHeader, MAX_PACKET_LEN, Packet as Whole, PacketId, PacketType, Properties,
    PropertiesBuf, Property, Publish, QoS, ReasonCode, RetainHandling, Subscribe, SubscribeFilter,
    SubscribeFiltersBuf, SubscriptionOptions, Unsubscribe, UnsubscribeFiltersBuf, Version, Will,
};

use crate::network::{ClientId, client_id};
use crate::packets::messages::{FILTERS, MessageNumber, Packet, TOPICS, Verdict, WILL_TOPIC, qos};

/// Milliseconds in a second, which is the unit of expiry intervals in MQTT.
const SECOND: u64 = 1_000;

/// Appends the bytes of a client's packet to `out`.
pub fn encode(client: ClientId, packet: Packet, out: &mut Vec<u8>) {
    let mut properties = PropertiesBuf::default();
    let mut put = |property: Property<'_>| properties.push(property).expect("it fits");
    match packet {
        Packet::Connect { clean_start, expiry, receive_maximum, will } => {
            put(Property::SessionExpiryInterval(seconds(expiry)));
            put(Property::ReceiveMaximum(receive_maximum));
            let mut of_will = PropertiesBuf::default();
            let number = will.unwrap_or_default().to_be_bytes();
            of_will.push(Property::CorrelationData(&number)).expect("it fits");
            let connect = Connect {
                version: Version::V5,
                is_bridge: false,
                clean_start,
                keep_alive: 0,
                client_id: &client_id(client),
                will: will.map(|_| Will {
                    qos: QoS::AtLeastOnce,
                    retain: false,
                    topic: TOPICS[WILL_TOPIC],
                    payload: b"gone",
                    properties: of_will.as_properties(),
                }),
                username: None,
                password: None,
                properties: properties.as_properties(),
            };
            write(&Whole::Connect(connect), out);
        }
        Packet::Publish { message, topic, qos: level, id, dup, retain, len, expiry } => {
            let number = message.to_be_bytes();
            put(Property::CorrelationData(&number));
            put(Property::UserProperty("n", &message.to_string()));
            if let Some(expiry) = expiry {
                put(Property::MessageExpiryInterval(seconds(Some(expiry))));
            }
            let publish = Publish {
                dup,
                qos: qos(level),
                retain,
                topic: TOPICS[topic],
                packet_id: PacketId::new(id),
                properties: properties.as_properties(),
                payload: &vec![b'x'; len],
            };
            write(&Whole::Publish(publish), out);
        }
        Packet::PubAck(id, _) => ack(PacketType::PubAck, id, out),
        Packet::PubRec(id, _) => ack(PacketType::PubRec, id, out),
        Packet::PubRel(id) => ack(PacketType::PubRel, id, out),
        Packet::PubComp(id) => ack(PacketType::PubComp, id, out),
        Packet::Subscribe(id, filter, level) => {
            let options = SubscriptionOptions {
                qos: qos(level),
                no_local: false,
                retain_as_published: false,
                retain_handling: RetainHandling::SendAtSubscribe,
            };
            let wanted = SubscribeFilter { filter: FILTERS[filter], options };
            let filters = SubscribeFiltersBuf::new([wanted]).expect("it is valid");
            let subscribe = Subscribe {
                packet_id: packet_id(id),
                properties: Properties::default(),
                filters: filters.as_filters(),
            };
            write(&Whole::Subscribe(subscribe), out);
        }
        Packet::Unsubscribe(id, filter) => {
            let filters = UnsubscribeFiltersBuf::new([FILTERS[filter]]).expect("it is valid");
            let unsubscribe = Unsubscribe {
                packet_id: packet_id(id),
                properties: Properties::default(),
                filters: filters.as_filters(),
            };
            write(&Whole::Unsubscribe(unsubscribe), out);
        }
        Packet::ConnAck { .. } | Packet::SubAck(..) | Packet::UnsubAck(..) | Packet::Disconnect => {
            unreachable!("a client sends no such packet")
        }
    }
}

/// Decodes the first packet in `bytes`, which the broker has sent. Returns the packet and its length, or `None`
/// if it is incomplete. The packet is `None` if clients here have no use for it. The number of the session, and
/// whether the return of its client is noted, are added to a CONNACK.
pub fn decode(bytes: &[u8], (birth, is_noted): (u64, bool)) -> Option<(Option<Packet>, usize)> {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN).expect("the broker sends MQTT")?;
    let packet = bytes.get(..header.packet_len())?;
    let body = &packet[header.header_len..];
    let whole = Whole::decode(Version::V5, header, body).expect("the broker sends MQTT");
    let told = match whole {
        Whole::ConnAck(connack) => {
            let present = (!connack.reason.is_error()).then_some(connack.session_present);
            Packet::ConnAck { present, birth, is_noted }
        }
        Whole::Publish(publish) => Packet::Publish {
            message: message_number(publish.properties),
            topic: topic(publish.topic),
            qos: publish.qos as u8,
            id: publish.packet_id.map_or(0, PacketId::get),
            dup: publish.dup,
            retain: publish.retain,
            len: publish.payload.len(),
            expiry: None,
        },
        Whole::PubAck(ack) => Packet::PubAck(ack.packet_id.get(), verdict(ack.reason)),
        Whole::PubRec(ack) => Packet::PubRec(ack.packet_id.get(), verdict(ack.reason)),
        Whole::PubRel(ack) => Packet::PubRel(ack.packet_id.get()),
        Whole::PubComp(ack) => Packet::PubComp(ack.packet_id.get()),
        Whole::SubAck(suback) => {
            let reason = ReasonCode::from_u8(suback.codes[0]).expect("it is a known one");
            Packet::SubAck(suback.packet_id.get(), verdict(reason))
        }
        Whole::UnsubAck(unsuback) => {
            let existed = unsuback.codes != [ReasonCode::NoSubscriptionExisted as u8];
            Packet::UnsubAck(unsuback.packet_id.get(), existed)
        }
        Whole::Disconnect(_) => return Some((None, packet.len())),
        other => unreachable!("nobody has asked for {other:?}"),
    };
    Some((Some(told), packet.len()))
}

/// Returns the number of a message, which is in its Correlation Data.
pub fn message_number(properties: Properties<'_>) -> MessageNumber {
    let number = properties.correlation_data().expect("messages are made with their number");
    MessageNumber::from_be_bytes(number.try_into().expect("it has four bytes"))
}

/// Returns the index of a topic.
pub fn topic(name: &str) -> usize {
    TOPICS.iter().position(|topic| *topic == name).expect("there are no other topics")
}

fn write(packet: &Whole<'_>, out: &mut Vec<u8>) {
    packet.encode(Version::V5, out).expect("it is valid");
}

fn ack(kind: PacketType, id: u16, out: &mut Vec<u8>) {
    let (packet_id, properties) = (packet_id(id), Properties::default());
    Ack { packet_id, reason: ReasonCode::Success, properties }
        .encode(kind, Version::V5, out)
        .expect("it is valid");
}

fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).expect("clients number from 1")
}

fn verdict(reason: ReasonCode) -> Verdict {
    if reason.is_error() { Verdict::Refused } else { Verdict::Done }
}

/// Converts milliseconds to seconds. `None` becomes the value for "does not expire".
fn seconds(millis: Option<u64>) -> u32 {
    let seconds = |millis: u64| u32::try_from(millis / SECOND).expect("histories are short");
    millis.map_or(u32::MAX, seconds)
}
