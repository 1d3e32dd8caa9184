//! Arbitrary packets. The memory that they borrow is leaked, because a test is short-lived.

use mqtt_proto::{
    Ack, Auth, ConnAck, Connect, ConnectReturnCode, DecodeError, Disconnect, FixedHeader,
    MAX_PACKET_LEN, Packet, PacketId, PacketType, Properties, PropertiesBuf, Property, PropertyId,
    PropertySet, Publish, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscribeFilter,
    SubscribeFiltersBuf, SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeFiltersBuf,
    Version, Will,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

pub const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

/// Decodes `bytes` as one whole packet. An incomplete header counts as truncated.
pub fn decode(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN)?.ok_or(DecodeError::Truncated)?;
    Packet::decode(version, header, &bytes[header.header_len..])
}

/// Encodes a packet, which must be encodable.
pub fn encode(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("the strategies make packets that can be written");
    out
}

pub fn version() -> impl Strategy<Value = Version> {
    select(VERSIONS.to_vec())
}

/// A version, and a packet that this version can express completely.
pub fn versioned_packet() -> impl Strategy<Value = (Version, Packet<'static>)> {
    version().prop_flat_map(|version| (Just(version), packet(version)))
}

/// A packet without anything that `version` cannot express.
pub fn packet(version: Version) -> BoxedStrategy<Packet<'static>> {
    let mut kinds: Vec<BoxedStrategy<Packet<'static>>> = vec![
        connect(version).prop_map(Packet::Connect).boxed(),
        connack(version).prop_map(Packet::ConnAck).boxed(),
        publish(version).prop_map(Packet::Publish).boxed(),
        ack(version, PacketType::PubAck).prop_map(Packet::PubAck).boxed(),
        ack(version, PacketType::PubRec).prop_map(Packet::PubRec).boxed(),
        ack(version, PacketType::PubRel).prop_map(Packet::PubRel).boxed(),
        ack(version, PacketType::PubComp).prop_map(Packet::PubComp).boxed(),
        subscribe(version).prop_map(Packet::Subscribe).boxed(),
        suback(version).prop_map(Packet::SubAck).boxed(),
        unsubscribe(version).prop_map(Packet::Unsubscribe).boxed(),
        unsuback(version).prop_map(Packet::UnsubAck).boxed(),
        select(vec![Packet::PingReq, Packet::PingResp]).boxed(),
        disconnect(version).prop_map(Packet::Disconnect).boxed(),
    ];
    if version.is_v5() {
        kinds.push(auth().prop_map(Packet::Auth).boxed());
    }
    proptest::strategy::Union::new(kinds).boxed()
}

fn connect(version: Version) -> impl Strategy<Value = Connect<'static>> {
    let credentials = (option::of(string()), option::of(data()));
    (
        any::<(bool, bool, u16)>(),
        string(),
        option::of(will(version)),
        credentials,
        properties(version, PropertySet::CONNECT),
    )
        .prop_map(
            move |(
                (is_bridge, clean_start, keep_alive),
                client_id,
                will,
                credentials,
                properties,
            )| {
                let (username, password) = credentials;
                let password = password.filter(|_| version.is_v5() || username.is_some());
                Connect {
                    version,
                    is_bridge: is_bridge && !version.is_v5(),
                    clean_start,
                    keep_alive,
                    client_id,
                    will,
                    username,
                    password,
                    properties,
                }
            },
        )
}

fn will(version: Version) -> impl Strategy<Value = Will<'static>> {
    (qos(), any::<bool>(), topic_name(), data(), properties(version, PropertySet::WILL)).prop_map(
        |(qos, retain, topic, payload, properties)| Will {
            qos,
            retain,
            topic,
            payload,
            properties,
        },
    )
}

fn connack(version: Version) -> impl Strategy<Value = ConnAck<'static>> {
    let reasons: Vec<ReasonCode> = match version {
        Version::V5 => reasons(&[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90,
            0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
        ]),
        _ => (0..=5).filter_map(ConnectReturnCode::from_u8).map(ReasonCode::from).collect(),
    };
    (any::<bool>(), select(reasons), properties(version, PropertySet::CONNACK)).prop_map(
        move |(session_present, reason, properties)| ConnAck {
            session_present: session_present
                && reason == ReasonCode::Success
                && version != Version::V3_1,
            reason,
            properties,
        },
    )
}

pub fn publish(version: Version) -> impl Strategy<Value = Publish<'static>> {
    (
        any::<(bool, bool)>(),
        qos(),
        topic_name(),
        packet_id(),
        properties(version, PropertySet::PUBLISH),
        vec(any::<u8>(), 0..300),
    )
        .prop_map(|((dup, retain), qos, topic, packet_id, properties, payload)| Publish {
            dup: dup && qos != QoS::AtMostOnce,
            qos,
            retain,
            topic: if dup && properties.topic_alias().is_some() { "" } else { topic },
            packet_id: (qos != QoS::AtMostOnce).then_some(packet_id),
            properties,
            payload: payload.leak(),
        })
}

fn ack(version: Version, packet_type: PacketType) -> impl Strategy<Value = Ack<'static>> {
    let reasons = match (version, packet_type) {
        (Version::V5, PacketType::PubAck | PacketType::PubRec) => {
            reasons(&[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
        }
        (Version::V5, _) => reasons(&[0x00, 0x92]),
        _ => vec![ReasonCode::Success],
    };
    (packet_id(), select(reasons), properties(version, PropertySet::ACK))
        .prop_map(|(packet_id, reason, properties)| Ack { packet_id, reason, properties })
}

fn subscribe(version: Version) -> impl Strategy<Value = Subscribe<'static>> {
    let filter = (topic_filter(), options(version)).prop_map(|(filter, mut options)| {
        options.no_local &= !filter.starts_with("$share/");
        SubscribeFilter { filter, options }
    });
    (packet_id(), properties(version, PropertySet::SUBSCRIBE), vec(filter, 1..5)).prop_map(
        |(packet_id, properties, filters)| {
            let filters = SubscribeFiltersBuf::new(filters).expect("at least one");
            let filters = Box::leak(Box::new(filters)).as_filters();
            Subscribe { packet_id, properties, filters }
        },
    )
}

fn options(version: Version) -> impl Strategy<Value = SubscriptionOptions> {
    let retain_handling = select(vec![
        RetainHandling::SendAtSubscribe,
        RetainHandling::SendIfNew,
        RetainHandling::DoNotSend,
    ]);
    (qos(), any::<(bool, bool)>(), retain_handling).prop_map(
        move |(qos, (no_local, retain_as_published), retain_handling)| match version {
            Version::V5 => {
                SubscriptionOptions { qos, no_local, retain_as_published, retain_handling }
            }
            _ => SubscriptionOptions { qos, ..Default::default() },
        },
    )
}

fn suback(version: Version) -> impl Strategy<Value = SubAck<'static>> {
    let codes: &[u8] = match version {
        Version::V5 => &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
        _ => &[0x00, 0x01, 0x02, 0x80],
    };
    (packet_id(), properties(version, PropertySet::SUBACK), vec(select(codes), 1..5)).prop_map(
        |(packet_id, properties, codes)| SubAck { packet_id, properties, codes: codes.leak() },
    )
}

fn unsubscribe(version: Version) -> impl Strategy<Value = Unsubscribe<'static>> {
    (packet_id(), properties(version, PropertySet::UNSUBSCRIBE), vec(topic_filter(), 1..5))
        .prop_map(|(packet_id, properties, filters)| {
            let filters = UnsubscribeFiltersBuf::new(filters).expect("at least one");
            let filters = Box::leak(Box::new(filters)).as_filters();
            Unsubscribe { packet_id, properties, filters }
        })
}

fn unsuback(version: Version) -> impl Strategy<Value = UnsubAck<'static>> {
    let codes: &[u8] = &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
    let len = if version.is_v5() { 1..5 } else { 0..1 };
    (packet_id(), properties(version, PropertySet::UNSUBACK), vec(select(codes), len)).prop_map(
        |(packet_id, properties, codes)| UnsubAck { packet_id, properties, codes: codes.leak() },
    )
}

fn disconnect(version: Version) -> impl Strategy<Value = Disconnect<'static>> {
    let reasons = match version {
        Version::V5 => reasons(&[
            0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93,
            0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1,
            0xA2,
        ]),
        _ => vec![ReasonCode::NORMAL_DISCONNECTION],
    };
    (select(reasons), properties(version, PropertySet::DISCONNECT))
        .prop_map(|(reason, properties)| Disconnect { reason, properties })
}

fn auth() -> impl Strategy<Value = Auth<'static>> {
    (select(reasons(&[0x00, 0x18, 0x19])), string(), properties(Version::V5, PropertySet::AUTH))
        .prop_map(|(reason, method, properties)| {
            let mut with_method = PropertiesBuf::new();
            with_method.push(Property::AuthenticationMethod(method)).expect("it is short");
            for raw in properties.raw().filter(|raw| raw.id != PropertyId::AuthenticationMethod) {
                with_method.push_raw(raw);
            }
            Auth { reason, properties: Box::leak(Box::new(with_method)).as_properties() }
        })
}

fn properties(
    version: Version,
    allowed: PropertySet,
) -> impl Strategy<Value = Properties<'static>> {
    let ids: Vec<PropertyId> = (0..=u8::MAX)
        .filter_map(PropertyId::from_u8)
        .filter(|&id| version.is_v5() && allowed.contains(id))
        .collect();
    let repeated = if version.is_v5() { 0..3_usize } else { 0..1 };
    let max = ids.len();
    (subsequence(ids, 0..=max).prop_shuffle(), repeated).prop_flat_map(|(mut ids, repeated)| {
        if !ids.contains(&PropertyId::AuthenticationMethod) {
            ids.retain(|&id| id != PropertyId::AuthenticationData);
        }
        ids.extend(std::iter::repeat_n(PropertyId::UserProperty, repeated));
        let values: Vec<_> = ids.into_iter().map(property).collect();
        values.prop_map(|values| {
            let mut properties = PropertiesBuf::new();
            for value in values {
                properties.push(value).expect("it is short and in range");
            }
            Box::leak(Box::new(properties)).as_properties()
        })
    })
}

fn property(id: PropertyId) -> BoxedStrategy<Property<'static>> {
    use Property as P;
    use PropertyId as Id;
    match id {
        Id::PayloadFormatIndicator => any::<bool>().prop_map(P::PayloadFormatIndicator).boxed(),
        Id::MessageExpiryInterval => any::<u32>().prop_map(P::MessageExpiryInterval).boxed(),
        Id::ContentType => string().prop_map(P::ContentType).boxed(),
        Id::ResponseTopic => topic_name().prop_map(P::ResponseTopic).boxed(),
        Id::CorrelationData => data().prop_map(P::CorrelationData).boxed(),
        Id::SubscriptionIdentifier => {
            (1..=268_435_455_u32).prop_map(P::SubscriptionIdentifier).boxed()
        }
        Id::SessionExpiryInterval => any::<u32>().prop_map(P::SessionExpiryInterval).boxed(),
        Id::AssignedClientIdentifier => string().prop_map(P::AssignedClientIdentifier).boxed(),
        Id::ServerKeepAlive => any::<u16>().prop_map(P::ServerKeepAlive).boxed(),
        Id::AuthenticationMethod => string().prop_map(P::AuthenticationMethod).boxed(),
        Id::AuthenticationData => data().prop_map(P::AuthenticationData).boxed(),
        Id::RequestProblemInformation => {
            any::<bool>().prop_map(P::RequestProblemInformation).boxed()
        }
        Id::WillDelayInterval => any::<u32>().prop_map(P::WillDelayInterval).boxed(),
        Id::RequestResponseInformation => {
            any::<bool>().prop_map(P::RequestResponseInformation).boxed()
        }
        Id::ResponseInformation => string().prop_map(P::ResponseInformation).boxed(),
        Id::ServerReference => string().prop_map(P::ServerReference).boxed(),
        Id::ReasonString => string().prop_map(P::ReasonString).boxed(),
        Id::ReceiveMaximum => (1..=u16::MAX).prop_map(P::ReceiveMaximum).boxed(),
        Id::TopicAliasMaximum => any::<u16>().prop_map(P::TopicAliasMaximum).boxed(),
        Id::TopicAlias => (1..=u16::MAX).prop_map(P::TopicAlias).boxed(),
        Id::MaximumQoS => {
            select(vec![QoS::AtMostOnce, QoS::AtLeastOnce]).prop_map(P::MaximumQoS).boxed()
        }
        Id::RetainAvailable => any::<bool>().prop_map(P::RetainAvailable).boxed(),
        Id::UserProperty => {
            (string(), string()).prop_map(|(name, value)| P::UserProperty(name, value)).boxed()
        }
        Id::MaximumPacketSize => (1..=u32::MAX).prop_map(P::MaximumPacketSize).boxed(),
        Id::WildcardSubscriptionAvailable => {
            any::<bool>().prop_map(P::WildcardSubscriptionAvailable).boxed()
        }
        Id::SubscriptionIdentifierAvailable => {
            any::<bool>().prop_map(P::SubscriptionIdentifierAvailable).boxed()
        }
        Id::SharedSubscriptionAvailable => {
            any::<bool>().prop_map(P::SharedSubscriptionAvailable).boxed()
        }
    }
}

fn qos() -> impl Strategy<Value = QoS> {
    select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    any::<std::num::NonZeroU16>().prop_map(PacketId::from)
}

fn reasons(codes: &[u8]) -> Vec<ReasonCode> {
    codes.iter().map(|&code| ReasonCode::from_u8(code).expect("it is in table 2-6")).collect()
}

fn string() -> impl Strategy<Value = &'static str> {
    leaked("[^\u{0}]{0,12}")
}

fn topic_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![leaked("[a-c/$]{1,12}"), leaked("[^\u{0}+#]{1,12}")]
}

fn topic_filter() -> impl Strategy<Value = &'static str> {
    leaked("(\\$share/[a-c]{1,3}/)?([a-c]{0,3}/|\\+/){0,4}([a-c]|\\+|#)")
}

fn data() -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..12).prop_map(|data| &*data.leak())
}

fn leaked(regex: &'static str) -> impl Strategy<Value = &'static str> {
    regex.prop_map(|string: String| &*string.leak())
}
