//! Any bytes as an MQTT packet: the decoder does not panic. A decoded packet can be encoded, and decodes again
//! to the same packet, also on the fast path for PUBLISH with a known topic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, Packet, Publish, Version};

fuzz_target!(|input: &[u8]| {
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        let Some(packet) = read(version, input) else { continue };
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("what is read can be written");
        assert_eq!(read(version, &bytes).as_ref(), Some(&packet));
        if let Packet::Publish(publish) = &packet {
            check_known_topic(version, &bytes, publish);
        }
    }
});

/// Decodes the packet at the beginning of `input`.
fn read(version: Version, input: &[u8]) -> Option<Packet<'_>> {
    let header = FixedHeader::read(input, MAX_PACKET_LEN).ok()??;
    let body = input.get(header.header_len..header.packet_len())?;
    Packet::decode(version, header, body).ok()
}

fn check_known_topic(version: Version, bytes: &[u8], publish: &Publish<'_>) {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN).ok().flatten();
    let header = header.expect("it was read before");
    let body = &bytes[header.header_len..];
    for known in [publish.topic, "a"] {
        let decoded = Publish::decode_with_known_topic(version, header, body, known);
        assert_eq!(decoded.as_ref(), Ok(publish));
    }
    assert_eq!(Publish::topic_bytes(body), Some(publish.topic.as_bytes()));
}
