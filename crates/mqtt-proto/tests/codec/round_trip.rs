use mqtt_proto::{DecodeError, FixedHeader, MAX_PACKET_LEN, Packet, Properties, Publish};
use proptest::prelude::*;

use crate::strategies::{VERSIONS, decode, encode, publish, version, versioned_packet};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_written_is_read((version, packet) in versioned_packet()) {
        let bytes = encode(version, &packet);
        prop_assert_eq!(decode(version, &bytes), Ok(packet));
    }

    #[test]
    fn writing_appends((version, packet) in versioned_packet(), before: Vec<u8>) {
        let mut out = before.clone();
        packet.encode(version, &mut out).unwrap();
        prop_assert_eq!(&out[..before.len()], &before);
        prop_assert_eq!(&out[before.len()..], &encode(version, &packet));
    }

    #[test]
    fn properties_written_one_by_one_are_the_same((version, packet) in versioned_packet()) {
        let Packet::Publish(publish) = packet else { return Ok(()) };
        prop_assume!(version.is_v5());
        let mut copy = mqtt_proto::PropertiesBuf::new();
        for property in publish.properties.iter() {
            copy.push(property).unwrap();
        }
        prop_assert_eq!(copy.as_properties(), publish.properties);
    }

    #[test]
    fn a_truncated_packet_is_never_read((version, packet) in versioned_packet()) {
        let bytes = encode(version, &packet);
        for end in 0..bytes.len() {
            prop_assert!(decode(version, &bytes[..end]).is_err());
            let header = FixedHeader::read(&bytes[..end], MAX_PACKET_LEN);
            prop_assert!(header.is_ok(), "a prefix of a valid packet is not refused early");
        }
    }

    /// A packet with a shorter body is at most a short form, or a PUBLISH with a shorter payload.
    /// Decoding never reads behind the end.
    #[test]
    fn a_body_cut_short_is_another_packet_or_none((version, packet) in versioned_packet()) {
        let bytes = encode(version, &packet);
        let header = FixedHeader::read(&bytes, MAX_PACKET_LEN).unwrap().unwrap();
        for body_len in 0..header.body_len {
            let mut shorter = Vec::new();
            FixedHeader::put(header.first, body_len, &mut shorter).unwrap();
            shorter.extend_from_slice(&bytes[header.header_len..header.header_len + body_len]);
            let other = decode(version, &shorter);
            prop_assert_ne!(&other, &Ok(packet.clone()));
            if let Packet::Connect(connect) = &packet {
                let may_end_early = connect.version == mqtt_proto::Version::V3_1;
                prop_assert!(other.is_err() || may_end_early);
            }
        }
    }

    #[test]
    fn a_longer_packet_than_the_limit_is_refused((version, packet) in versioned_packet()) {
        let bytes = encode(version, &packet);
        prop_assert!(FixedHeader::read(&bytes, bytes.len()).is_ok());
        prop_assert_eq!(FixedHeader::read(&bytes, bytes.len() - 1), Err(DecodeError::TooLarge));
    }

    #[test]
    fn header_and_payload_of_a_publish_are_the_whole(
        (version, publish) in version().prop_flat_map(|version| (Just(version), publish(version)))
    ) {
        let mut bytes = Vec::new();
        publish.encode_header(version, &mut bytes).unwrap();
        bytes.extend_from_slice(publish.payload);
        prop_assert_eq!(&bytes, &encode(version, &Packet::Publish(publish.clone())));

        let header = FixedHeader::read(&bytes, MAX_PACKET_LEN).unwrap().unwrap();
        let body = &bytes[header.header_len..];
        for known in [publish.topic, "another"] {
            let decoded = Publish::decode_with_known_topic(version, header, body, known);
            prop_assert_eq!(decoded.as_ref(), Ok(&publish));
        }
        prop_assert_eq!(Publish::topic_bytes(body), Some(publish.topic.as_bytes()));
    }
}

#[test]
fn a_body_of_the_largest_size_is_written_and_one_byte_more_is_not() {
    let payload = vec![0; mqtt_proto::MAX_REMAINING_LENGTH - 3];
    let publish = |topic| Publish {
        dup: false,
        qos: mqtt_proto::QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: Properties::EMPTY,
        payload: &payload,
    };
    let mut out = Vec::new();
    let version = mqtt_proto::Version::V3_1_1;
    assert_eq!(publish("a").encode_header(version, &mut out), Ok(()));
    assert_eq!(out, [0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, b'a']);
    out.clear();
    assert_eq!(
        publish("ab").encode(version, &mut out),
        Err(mqtt_proto::EncodeError::PacketTooLong)
    );
    assert!(out.is_empty());
}

/// The seeds of the fuzz target are valid packets of all types.
#[test]
fn every_seed_of_the_fuzz_target_is_a_packet() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/mqtt_packet");
    let mut kinds = std::collections::BTreeSet::new();
    for seed in std::fs::read_dir(seeds).unwrap() {
        let path = seed.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let packet = VERSIONS.iter().find_map(|&version| decode(version, &bytes).ok());
        kinds.insert(packet.unwrap_or_else(|| panic!("{} is none", path.display())).packet_type());
    }
    assert_eq!(kinds.len(), 15);
}
