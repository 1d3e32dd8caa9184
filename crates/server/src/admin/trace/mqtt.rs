//! The fields of MQTT packets.

use mqtt_proto::{
    Ack, FixedHeader, Packet, PacketType, Properties, Property, Publish, ReasonCode, Version,
};
use serde_json::{Value, json};

use super::super::readable::Readable;
use super::fields::Fields;

/// Maximum length of a payload that is shown, in bytes.
const PAYLOAD_MAX: usize = 4 * 1024;

/// Describes a packet of `bytes` bytes, of which `head` are the first. Returns its name and its fields.
pub fn describe(
    version: Version,
    head: &[u8],
    bytes: usize,
    payload: bool,
) -> (&'static str, Fields) {
    let mut fields = Fields::default();
    let Ok(Some(header)) = FixedHeader::read(head, usize::MAX) else { return ("?", fields) };
    let name = header.packet_type().name();
    let body = &head[header.header_len..];
    if header.packet_type() == PacketType::Publish {
        put_publish(&mut fields, version, (header.first, body), bytes - head.len(), payload);
    } else if head.len() < bytes {
        fields.put("is_too_long_to_show", true);
    } else {
        match Packet::decode(version, header, body) {
            Ok(packet) => put_packet(&mut fields, version, &packet),
            Err(error) => fields.put("malformed", error.to_string()),
        }
    }
    (name, fields)
}

/// Describes a PUBLISH without the last `cut` bytes of its body.
fn put_publish(
    fields: &mut Fields,
    version: Version,
    (first, body): (u8, &[u8]),
    cut: usize,
    payload: bool,
) {
    // It is read as the shorter packet that it would be without them.
    let mut shorter = Vec::new();
    let header = FixedHeader::put(first, body.len(), &mut shorter)
        .ok()
        .and_then(|()| FixedHeader::read(&shorter, usize::MAX).ok().flatten());
    let publish = header.map(|header| Publish::decode(version, header, body));
    let Some(Ok(publish)) = publish else {
        fields.put("is_too_long_to_show", true);
        return;
    };
    fields.put("topic", publish.topic);
    fields.put("qos", publish.qos as u8);
    fields.put("packet_id", publish.packet_id.map(|id| id.get()));
    fields.flag("dup", publish.dup);
    fields.flag("retain", publish.retain);
    fields.put("payload_bytes", publish.payload.len() + cut);
    put_properties(fields, publish.properties);
    if payload {
        let (shown, is_cut) = Readable::beginning(publish.payload, PAYLOAD_MAX);
        put_readable(fields, "payload", shown);
        fields.flag("payload_is_cut", is_cut);
    }
}

fn put_packet(fields: &mut Fields, version: Version, packet: &Packet<'_>) {
    match packet {
        Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubRel(ack) | Packet::PubComp(ack) => {
            let Ack { packet_id, reason, properties } = ack;
            fields.put("packet_id", packet_id.get());
            put_reason(fields, version, *reason);
            put_properties(fields, *properties);
        }
        Packet::Subscribe(subscribe) => {
            fields.put("packet_id", subscribe.packet_id.get());
            let filters = subscribe.filters.map(|one| {
                let options = one.options;
                let mut shown = json!({ "filter": one.filter, "qos": options.qos as u8 });
                for (name, is_set) in [
                    ("no_local", options.no_local),
                    ("retain_as_published", options.retain_as_published),
                ] {
                    if is_set {
                        shown[name] = true.into();
                    }
                }
                shown
            });
            fields.put("filters", filters.collect::<Value>());
            put_properties(fields, subscribe.properties);
        }
        Packet::Unsubscribe(unsubscribe) => {
            fields.put("packet_id", unsubscribe.packet_id.get());
            fields.put("filters", unsubscribe.filters.collect::<Value>());
            put_properties(fields, unsubscribe.properties);
        }
        Packet::SubAck(suback) => {
            fields.put("packet_id", suback.packet_id.get());
            fields.put("codes", codes(suback.codes));
            put_properties(fields, suback.properties);
        }
        Packet::UnsubAck(unsuback) => {
            fields.put("packet_id", unsuback.packet_id.get());
            fields.put("codes", codes(unsuback.codes));
            put_properties(fields, unsuback.properties);
        }
        Packet::ConnAck(connack) => {
            fields.put("session_present", connack.session_present);
            put_reason(fields, Version::V5, connack.reason);
            put_properties(fields, connack.properties);
        }
        Packet::Disconnect(disconnect) => {
            put_reason(fields, version, disconnect.reason);
            put_properties(fields, disconnect.properties);
        }
        Packet::Auth(auth) => {
            put_reason(fields, version, auth.reason);
            put_properties(fields, auth.properties);
        }
        // A CONNECT has the password. It is never tapped, and never shown.
        Packet::Connect(_) | Packet::Publish(_) | Packet::PingReq | Packet::PingResp => {}
    }
}

/// Shows return codes of MQTT 3 as they are, and reason codes by name.
fn codes(codes: &[u8]) -> Value {
    codes
        .iter()
        .map(|&code| match ReasonCode::from_u8(code) {
            Some(reason) if reason.is_error() => Value::from(reason.name()),
            _ => Value::from(code),
        })
        .collect()
}

/// Shows a reason code. Packets of MQTT 3 have none.
fn put_reason(fields: &mut Fields, version: Version, reason: ReasonCode) {
    if version == Version::V5 {
        fields.put("reason", reason.name());
    }
}

fn put_properties(fields: &mut Fields, properties: Properties<'_>) {
    let mut of_user = Vec::new();
    for property in properties.iter() {
        let name = property.id().name().to_lowercase().replace(' ', "_");
        let value = match property {
            Property::UserProperty(name, value) => {
                of_user.push(json!([name, value]));
                continue;
            }
            Property::CorrelationData(data) => {
                put_readable(fields, &name, Readable::beginning(data, PAYLOAD_MAX).0);
                continue;
            }
            // It may prove who the client is.
            Property::AuthenticationData(data) => {
                fields.put(name + "_bytes", data.len());
                continue;
            }
            Property::PayloadFormatIndicator(is)
            | Property::RequestProblemInformation(is)
            | Property::RequestResponseInformation(is)
            | Property::RetainAvailable(is)
            | Property::WildcardSubscriptionAvailable(is)
            | Property::SubscriptionIdentifierAvailable(is)
            | Property::SharedSubscriptionAvailable(is) => Value::from(is),
            Property::MessageExpiryInterval(number)
            | Property::SubscriptionIdentifier(number)
            | Property::SessionExpiryInterval(number)
            | Property::WillDelayInterval(number)
            | Property::MaximumPacketSize(number) => number.into(),
            Property::ServerKeepAlive(number)
            | Property::ReceiveMaximum(number)
            | Property::TopicAliasMaximum(number)
            | Property::TopicAlias(number) => number.into(),
            Property::MaximumQoS(qos) => (qos as u8).into(),
            Property::ContentType(text)
            | Property::ResponseTopic(text)
            | Property::AssignedClientIdentifier(text)
            | Property::AuthenticationMethod(text)
            | Property::ResponseInformation(text)
            | Property::ServerReference(text)
            | Property::ReasonString(text) => text.into(),
        };
        fields.put(name, value);
    }
    if !of_user.is_empty() {
        fields.put("user_properties", of_user);
    }
}

fn put_readable(fields: &mut Fields, name: &str, shown: Readable) {
    if let Some(text) = shown.text {
        fields.put(name, text);
    }
    if let Some(text) = shown.base64 {
        fields.put(format!("{name}_base64"), text);
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use mqtt_proto::{PropertiesBuf, QoS};

    use super::*;

    fn shown(head: &[u8], bytes: usize, payload: bool) -> (&'static str, String) {
        let (name, fields) = describe(Version::V5, head, bytes, payload);
        (name, serde_json::to_string(&fields).expect("fields are JSON"))
    }

    #[test]
    fn a_publish_has_its_fields_in_order_and_its_payload_on_demand() {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::MessageExpiryInterval(60)).expect("short");
        properties.push(Property::UserProperty("a", "b")).expect("short");
        let mut packet = Vec::new();
        Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "t/1",
            packet_id: mqtt_proto::PacketId::new(7),
            properties: properties.as_properties(),
            payload: b"secret",
        })
        .encode(Version::V5, &mut packet)
        .expect("it can be encoded");
        let without = r#"{"topic":"t/1","qos":1,"packet_id":7,"retain":true,"payload_bytes":6,"message_expiry_interval":60,"user_properties":[["a","b"]]"#;
        assert_eq!(shown(&packet, packet.len(), false), ("PUBLISH", format!("{without}}}")));
        let with = format!("{without},\"payload\":\"secret\"}}");
        assert_eq!(shown(&packet, packet.len(), true), ("PUBLISH", with));
        // The length of the payload includes bytes that were cut off.
        let cut = shown(&packet[..packet.len() - 2], packet.len(), true).1;
        assert!(
            cut.contains(r#""payload_bytes":6"#) && cut.contains(r#""payload":"secr""#),
            "{cut}"
        );
    }

    #[test]
    fn authentication_data_is_not_shown() {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::AuthenticationMethod("M")).expect("short");
        properties.push(Property::AuthenticationData(b"hidden")).expect("short");
        let mut packet = Vec::new();
        let reason = ReasonCode::ContinueAuthentication;
        mqtt_proto::Auth { reason, properties: properties.as_properties() }
            .encode(Version::V5, &mut packet)
            .expect("it can be encoded");
        let (name, fields) = shown(&packet, packet.len(), true);
        assert_eq!(name, "AUTH");
        assert!(fields.contains(r#""authentication_data_bytes":6"#), "{fields}");
        assert!(
            !fields.contains("hidden") && !fields.contains(&BASE64.encode(b"hidden")),
            "{fields}"
        );
    }

    #[test]
    fn bytes_that_are_no_packet_are_named() {
        assert_eq!(shown(&[0x40, 1, 0], 3, false).0, "PUBACK");
        assert!(shown(&[0x40, 1, 0], 3, false).1.contains("malformed"));
        assert_eq!(shown(&[], 0, false).0, "?");
    }
}
