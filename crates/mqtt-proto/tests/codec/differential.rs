//! Compares the codec with `mqtt-protocol-core`, an independent implementation, on the same bytes.

use std::sync::Arc;

use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, Packet, PacketType, Version};
use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};
use proptest::prelude::*;

use crate::strategies::{decode, encode, packet};

/// Reads one whole packet with the other codec and writes it again. Returns `None` if the other codec refuses it.
macro_rules! through_the_other {
    ($version:ident, $header:expr, $body:expr, $($kind:ident => $module:ident),*) => {{
        let body: &[u8] = $body;
        match $header.packet_type() {
            PacketType::Publish => {
                let flags = $header.first & 0x0F;
                let (packet, read) = $version::Publish::parse(flags, Arc::from(body)).ok()?;
                (packet.to_continuous_buffer(), read)
            }
            $(PacketType::$kind => {
                let (packet, read) = $version::$module::parse(body).ok()?;
                (packet.to_continuous_buffer(), read)
            })*
            #[allow(unreachable_patterns, reason = "MQTT 5 has all types, MQTT 3 has no AUTH")]
            _ => return None,
        }
    }};
}

fn other(version: Version, bytes: &[u8]) -> Option<Vec<u8>> {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN).ok()??;
    let body = &bytes[header.header_len..];
    let (written, read) = match version {
        Version::V3_1 => return None,
        Version::V3_1_1 => through_the_other!(
            v3_1_1, header, body,
            Connect => Connect, ConnAck => Connack, PubAck => Puback, PubRec => Pubrec,
            PubRel => Pubrel, PubComp => Pubcomp, Subscribe => Subscribe, SubAck => Suback,
            Unsubscribe => Unsubscribe, UnsubAck => Unsuback, PingReq => Pingreq,
            PingResp => Pingresp, Disconnect => Disconnect
        ),
        Version::V5 => through_the_other!(
            v5_0, header, body,
            Connect => Connect, ConnAck => Connack, PubAck => Puback, PubRec => Pubrec,
            PubRel => Pubrel, PubComp => Pubcomp, Subscribe => Subscribe, SubAck => Suback,
            Unsubscribe => Unsubscribe, UnsubAck => Unsuback, PingReq => Pingreq,
            PingResp => Pingresp, Disconnect => Disconnect, Auth => Auth
        ),
    };
    (read == body.len()).then_some(written)
}

/// Packets that the other codec refuses and this one accepts.
fn is_refused_by_the_other(packet: &Packet<'_>) -> bool {
    match packet {
        // Section 3.1.2.9 of MQTT 5 allows a password without a user name. The flag of bridges is not in any standard.
        Packet::Connect(connect) => {
            connect.is_bridge || connect.password.is_some() && connect.username.is_none()
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn in_3_1_1_the_other_reads_and_writes_what_we_mean(packet in packet(Version::V3_1_1)) {
        prop_assume!(!is_refused_by_the_other(&packet));
        let ours = encode(Version::V3_1_1, &packet);
        let theirs = other(Version::V3_1_1, &ours).unwrap_or_default();
        prop_assert_eq!(decode(Version::V3_1_1, &theirs), Ok(packet), "from {:02X?}", ours);
    }

    #[test]
    fn in_5_the_other_reads_and_writes_what_we_mean(packet in packet(Version::V5)) {
        prop_assume!(!is_refused_by_the_other(&packet));
        let ours = encode(Version::V5, &packet);
        let theirs = other(Version::V5, &ours).unwrap_or_default();
        prop_assert_eq!(decode(Version::V5, &theirs), Ok(packet), "from {:02X?}", ours);
    }

    /// If both codecs accept the bytes, they decode the same packet.
    #[test]
    fn with_one_wrong_byte_the_other_does_not_read_something_else(
        (version, packet) in prop_oneof![Just(Version::V3_1_1), Just(Version::V5)]
            .prop_flat_map(|version| (Just(version), packet(version))),
        at: prop::sample::Index,
        wrong: u8,
    ) {
        let mut bytes = encode(version, &packet);
        let at = at.index(bytes.len());
        bytes[at] = wrong;
        if let (Ok(ours), Some(theirs)) = (decode(version, &bytes), other(version, &bytes)) {
            prop_assert_eq!(decode(version, &theirs), Ok(ours));
        }
    }
}
