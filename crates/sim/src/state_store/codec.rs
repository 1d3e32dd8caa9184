//! Encoding and decoding of the packets between clients and the state store, as MQTT 5.

use std::num::NonZeroU64;

use mqtt_proto::{
    Ack, Connect, FixedHeader, MAX_PACKET_LEN, Packet as Whole, PacketId, PacketType, Properties,
    PropertiesBuf, Property, Publish, QoS, ReasonCode, SubAck, Subscribe, SubscribeFilter,
    SubscribeFiltersBuf, SubscriptionOptions, Version,
};
use statestore_proto::{self as proto, Hlc, Notification, Reply, properties, topics};

use crate::network::{ClientId, client_id};
use crate::packets::state_store::{
    Command, KEYS, Key, Packet, Request, RequestNumber, Told, Value,
};

/// First packet identifier that is used for SUBSCRIBE and KEYNOTIFY. Correlation Data from this number, shifted
/// left by 16 bits, on is of KEYNOTIFY.
const OTHERS: u16 = 0x8000;

/// Appends the bytes of a client's packet to `out`. A CONNECT has the user name `user`, and is followed by the SUBSCRIBE for
/// responses and notifications.
pub fn encode(client: ClientId, user: Option<&str>, packet: Packet, out: &mut Vec<u8>) {
    let client_id = client_id(client);
    match packet {
        Packet::Connect { clean } => {
            let mut properties = PropertiesBuf::default();
            put(&mut properties, Property::SessionExpiryInterval(u32::MAX));
            let connect = Connect {
                version: Version::V5,
                is_bridge: false,
                clean_start: clean,
                keep_alive: 0,
                client_id: &client_id,
                will: None,
                username: user,
                password: None,
                properties: properties.as_properties(),
            };
            write(&Whole::Connect(connect), out);
            let (responses, notifications) =
                (response_topic(&client_id), topics::notify_filter(&client_id));
            let options =
                SubscriptionOptions { qos: QoS::AtLeastOnce, ..SubscriptionOptions::default() };
            let wanted = [&*responses, &*notifications];
            let wanted = wanted.map(|filter| SubscribeFilter { filter, options });
            let filters = SubscribeFiltersBuf::new(wanted).expect("they are valid");
            let (packet_id, properties) = (packet_id(OTHERS), Properties::default());
            let filters = filters.as_filters();
            write(&Whole::Subscribe(Subscribe { packet_id, properties, filters }), out);
        }
        Packet::Request(request) => put_request(&client_id, &request, out),
        Packet::Watch(key) => {
            let number = OTHERS + 1 + u16::try_from(key).expect("there are few");
            let command = proto::Command::KeyNotify { key: KEYS[key].as_bytes(), stop: false };
            let sent = (number, false, u32::from(number) << 16);
            let mut properties = PropertiesBuf::default();
            publish(&client_id, sent, &command, &mut properties, out);
        }
        Packet::Got(id) => {
            let (packet_id, properties) = (packet_id(id), Properties::default());
            Ack { packet_id, reason: ReasonCode::Success, properties }
                .encode(PacketType::PubAck, Version::V5, out)
                .expect("it is valid");
        }
        Packet::ConnAck
        | Packet::PubAck(_)
        | Packet::Response(..)
        | Packet::Watching(_)
        | Packet::Notification(..)
        | Packet::Disconnect => unreachable!("a client sends no such packet"),
    }
}

fn put_request(client_id: &str, request: &Request, out: &mut Vec<u8>) {
    let stamp = Hlc { wall: request.timestamp, counter: 0, node: "c" }.to_string();
    let token = request.token.map(|token| token.to_string());
    let mut properties = PropertiesBuf::default();
    put(&mut properties, Property::UserProperty(properties::TIMESTAMP, &stamp));
    if let Some(token) = &token {
        put(&mut properties, Property::UserProperty(properties::FENCING_TOKEN, token));
    }
    let key = KEYS[request.key].as_bytes();
    let bytes = |value: Value| value.to_be_bytes();
    let sent = (request.id, request.dup, request.number);
    let mut publish = |command| publish(client_id, sent, command, &mut properties, out);
    match request.command {
        Command::Set(value, condition, ttl) => {
            let (value, ttl) = (&bytes(value), ttl.and_then(NonZeroU64::new));
            publish(&proto::Command::Set { key, value, condition, ttl });
        }
        Command::Get => publish(&proto::Command::Get { key }),
        Command::Del => publish(&proto::Command::Del { key }),
        Command::VDel(value) => publish(&proto::Command::VDel { key, value: &bytes(value) }),
    }
}

fn publish(
    client_id: &str,
    (id, dup, number): (u16, bool, RequestNumber),
    command: &proto::Command<'_>,
    properties: &mut PropertiesBuf,
    out: &mut Vec<u8>,
) {
    put(properties, Property::ResponseTopic(&response_topic(client_id)));
    put(properties, Property::CorrelationData(&number.to_be_bytes()));
    let mut payload = Vec::new();
    command.encode(&mut payload);
    let publish = Publish {
        dup,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: topics::INVOKE,
        packet_id: PacketId::new(id),
        properties: properties.as_properties(),
        payload: &payload,
    };
    write(&Whole::Publish(publish), out);
}

/// Decodes the first packet in `bytes`, which the broker has sent. Returns the packet and its length, or `None`
/// if it is incomplete. The packet is `None` if clients here have no use for it.
pub fn decode(bytes: &[u8]) -> Option<(Option<Packet>, usize)> {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN).expect("the broker sends MQTT")?;
    let packet = bytes.get(..header.packet_len())?;
    let body = &packet[header.header_len..];
    let whole = Whole::decode(Version::V5, header, body).expect("the broker sends MQTT");
    let told = match whole {
        Whole::ConnAck(connack) if connack.reason.is_error() => None,
        Whole::ConnAck(_) => Some(Packet::ConnAck),
        Whole::Publish(publish) => Some(published(&publish)),
        Whole::PubAck(ack) => Some(Packet::PubAck(ack.packet_id.get())),
        // A client without its subscriptions gets no responses, so it connects again.
        Whole::SubAck(suback) if is_refused(&suback) => Some(Packet::Disconnect),
        Whole::SubAck(_) | Whole::Disconnect(_) => None,
        other => unreachable!("nobody has asked for {other:?}"),
    };
    Some((told, packet.len()))
}

fn is_refused(suback: &SubAck<'_>) -> bool {
    let mut reasons = suback.codes.iter().map(|code| ReasonCode::from_u8(*code));
    reasons.any(|reason| reason.is_none_or(ReasonCode::is_error))
}

fn published(publish: &Publish<'_>) -> Packet {
    let id = publish.packet_id.expect("it has QoS 1").get();
    let version = version_of(publish.properties);
    if let Some(key) = topics::key_of(publish.topic) {
        let notification = Notification::decode(publish.payload).expect("the store tells it");
        let value = match notification {
            Notification::Set(value) => Some(value_of(value)),
            Notification::Delete => None,
        };
        return Packet::Notification(key_of(&key), value, version.expect("it has one"), id);
    }
    let correlation = publish.properties.correlation_data().expect("a response has it");
    let number = RequestNumber::from_be_bytes(correlation.try_into().expect("it has four bytes"));
    if number >= u32::from(OTHERS) << 16 {
        return Packet::Watching(id);
    }
    let version = || version.expect("what has a value or was changed has a version");
    let told = match Reply::decode(publish.payload).expect("the store answers") {
        Reply::Ok => Told::Set(version()),
        Reply::NotApplied => Told::NotApplied(version()),
        Reply::Value(value) => Told::Value(value_of(value), version()),
        Reply::Absent => Told::Absent,
        Reply::Deleted => Told::Deleted(version()),
        Reply::Nothing => Told::Nothing,
        Reply::Refused(refusal) => Told::Refused(refusal),
        Reply::Page { .. } => unreachable!("nobody has asked for one"),
    };
    Packet::Response(number, told, id)
}

fn version_of(given: Properties<'_>) -> Option<proto::Version> {
    let mut given = given.user_properties();
    let (_, stamp) = given.find(|(name, _)| *name == properties::TIMESTAMP)?;
    let Hlc { wall, counter, .. } = Hlc::parse(stamp).expect("the store writes it");
    Some(proto::Version { wall, counter })
}

fn response_topic(client_id: &str) -> String {
    format!("responses/{client_id}")
}

fn key_of(key: &[u8]) -> Key {
    KEYS.iter().position(|known| known.as_bytes() == key).expect("one of ours")
}

/// Decodes a value that a client has set.
pub fn value_of(value: &[u8]) -> Value {
    Value::from_be_bytes(value.try_into().expect("values were made of numbers"))
}

fn put(properties: &mut PropertiesBuf, property: Property<'_>) {
    properties.push(property).expect("it fits");
}

fn write(packet: &Whole<'_>, out: &mut Vec<u8>) {
    packet.encode(Version::V5, out).expect("it is valid");
}

fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).expect("clients number from 1")
}
