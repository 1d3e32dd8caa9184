//! Packets of MQTT that messages and their acknowledgements are.

use mqtt_proto::{FixedHeader, Packet, PacketType, Publish, QoS, ReasonCode, Version};

use super::context::{TRACEPARENT, TraceContext};
use super::span::{Direction, Value};
use super::tap::{Key, Message, Seen};

/// Reads a packet that passes in this direction; `head` may be only its beginning.
pub fn read<'a>(
    version: Version,
    direction: Direction,
    head: &'a [u8],
    shorter: &'a mut Vec<u8>,
) -> Option<Seen<'a>> {
    let header = FixedHeader::read(head, usize::MAX).ok()??;
    let body = &head[header.header_len..];
    if header.packet_type() == PacketType::Publish {
        return publish(version, header, body, shorter).map(Seen::Message);
    }
    let ends = match (header.packet_type(), direction) {
        // The broker sends PUBREC when the message is durable. A client that sends it has yet to say that it is done.
        (PacketType::PubAck, _)
        | (PacketType::PubRec, Direction::Sent)
        | (PacketType::PubComp, Direction::Received) => true,
        (PacketType::PubRec, Direction::Received) => false,
        _ => return None,
    };
    let Ok(Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack)) =
        Packet::decode(version, header, body)
    else {
        return None;
    };
    let error = (version == Version::V5 && ack.reason.is_error()).then(|| ack.reason.name());
    let key = Key::from(ack.packet_id.get());
    (ends || error.is_some()).then(|| Seen::Answer {
        first: key,
        last: key,
        error,
        outcome: reason(ack.reason),
    })
}

fn reason(reason: ReasonCode) -> (&'static str, Value) {
    ("messaging.mqtt.reason", Value::Text(reason.name()))
}

fn publish<'a>(
    version: Version,
    header: FixedHeader,
    body: &'a [u8],
    shorter: &'a mut Vec<u8>,
) -> Option<Message<'a>> {
    if version != Version::V5 {
        return None;
    }
    // One of which the end is missing is read as the shorter packet that it would be.
    let header = if header.packet_len() - header.header_len == body.len() {
        header
    } else {
        FixedHeader::put(header.first, body.len(), shorter).ok()?;
        FixedHeader::read(shorter, usize::MAX).ok()??
    };
    let publish = Publish::decode(version, header, body).ok()?;
    let parent = publish.properties.user_properties().find(|(name, _)| *name == TRACEPARENT);
    Some(Message {
        context: parent.and_then(|(_, text)| TraceContext::parse(text)),
        alias: publish.properties.topic_alias(),
        destination: publish.topic,
        key: publish.packet_id.map(|id| Key::from(id.get())),
        fact: (
            "messaging.mqtt.qos",
            Value::Number(match publish.qos {
                QoS::AtMostOnce => 0,
                QoS::AtLeastOnce => 1,
                QoS::ExactlyOnce => 2,
            }),
        ),
    })
}
