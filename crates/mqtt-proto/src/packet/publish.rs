use super::{read_packet_id, read_properties};
use crate::topic;
use crate::wire::{Reader, put_str, put_u16, put_varint, varint_len};
use crate::{
    DecodeError, EncodeError, FixedHeader, PacketId, PacketType, Properties, PropertySet, QoS,
    Version,
};

const RETAIN: u8 = 0x01;
const QOS_SHIFT: u8 = 1;
const DUP: u8 = 0x08;

/// PUBLISH: carries an Application Message (section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Whether the packet may have been sent before; never set with QoS 0.
    pub dup: bool,
    /// The QoS of the delivery.
    pub qos: QoS,
    /// The RETAIN flag. Set by a client: the server is to retain the message. Set by a server: the
    /// message was retained.
    pub retain: bool,
    /// The topic name; empty in MQTT 5 if a Topic Alias stands for it.
    pub topic: &'a str,
    /// The Packet Identifier; present only with QoS 1 and 2.
    pub packet_id: Option<PacketId>,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// The payload of the message.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Decodes the PUBLISH with this `header`. `body` is everything after the header.
    ///
    /// The topic name is checked by [`topic::validate_name`]. The payload is not checked, see
    /// [`Publish::check_payload_format`].
    #[inline]
    pub fn decode(
        version: Version,
        header: FixedHeader,
        body: &'a [u8],
    ) -> Result<Self, DecodeError> {
        Self::decode_with(version, header, body, topic::decode_name)
    }

    /// Decodes like [`Publish::decode`], but skips the check of a topic that equals the valid topic
    /// name `known`: a client often uses the same topic many times.
    #[inline]
    pub fn decode_with_known_topic(
        version: Version,
        header: FixedHeader,
        body: &'a [u8],
        known: &'a str,
    ) -> Result<Self, DecodeError> {
        Self::decode_with(version, header, body, |bytes| {
            if bytes == known.as_bytes() { Ok(known) } else { topic::decode_name(bytes) }
        })
    }

    /// Returns the bytes of the topic in the `body` of a PUBLISH, without any check of the topic.
    #[inline]
    pub fn topic_bytes(body: &[u8]) -> Option<&[u8]> {
        Reader::new(body).bytes().ok()
    }

    #[inline(always)]
    fn decode_with(
        version: Version,
        header: FixedHeader,
        body: &'a [u8],
        decode_name: impl FnOnce(&'a [u8]) -> Result<&'a str, DecodeError>,
    ) -> Result<Self, DecodeError> {
        debug_assert_eq!(header.first >> 4, PacketType::Publish as u8);
        header.check(version, body)?;
        let dup = header.first & DUP != 0;
        let retain = header.first & RETAIN != 0;
        let qos = QoS::try_from(header.first >> QOS_SHIFT & 3)?;
        if dup && qos == QoS::AtMostOnce {
            return Err(DecodeError::DupWithQoS0);
        }
        let mut reader = Reader::new(body);
        let topic = match reader.bytes()? {
            [] if version.is_v5() => "",
            bytes => decode_name(bytes)?,
        };
        let packet_id = match qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce | QoS::ExactlyOnce => Some(read_packet_id(&mut reader)?),
        };
        let properties = read_properties(version, &mut reader, PropertySet::PUBLISH)?;
        if topic.is_empty() && properties.topic_alias().is_none() {
            return Err(DecodeError::NoTopic);
        }
        Ok(Publish { dup, qos, retain, topic, packet_id, properties, payload: reader.rest() })
    }

    /// Checks that a payload that is marked as UTF-8 is valid UTF-8. A receiver may make this check
    /// (section 3.3.2.3.2).
    pub fn check_payload_format(&self) -> Result<(), DecodeError> {
        let claims = self.properties.payload_format_indicator() == Some(true);
        if claims && std::str::from_utf8(self.payload).is_err() {
            return Err(DecodeError::PayloadFormat);
        }
        Ok(())
    }

    /// Appends the packet. Appends nothing on error.
    #[inline]
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode_header(version, out)?;
        out.extend_from_slice(self.payload);
        Ok(())
    }

    /// Appends everything but the payload, for a caller that writes the payload directly from its
    /// source. The Remaining Length includes the payload. Appends nothing on error.
    #[inline]
    pub fn encode_header(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.topic.len() > topic::MAX_LEN {
            return Err(EncodeError::FieldTooLong);
        }
        let packet_id = match self.qos {
            QoS::AtMostOnce => None,
            _ => Some(self.packet_id.ok_or(EncodeError::NoPacketId)?),
        };
        let properties = if version.is_v5() { self.properties.as_bytes() } else { &[] };
        let mut body_len = 2 + self.topic.len() + self.payload.len();
        if packet_id.is_some() {
            body_len += 2;
        }
        if version.is_v5() {
            body_len += varint_len(properties.len()) + properties.len();
        }
        FixedHeader::put(self.first_byte(), body_len, out)?;
        out.reserve(body_len - self.payload.len());
        put_str(self.topic, out)?;
        if let Some(packet_id) = packet_id {
            put_u16(packet_id.get(), out);
        }
        if version.is_v5() {
            put_varint(properties.len() as u32, out);
            out.extend_from_slice(properties);
        }
        Ok(())
    }

    /// The first byte of the packet: packet type and flags.
    #[inline]
    pub fn first_byte(&self) -> u8 {
        let dup = self.dup && self.qos != QoS::AtMostOnce;
        (PacketType::Publish as u8) << 4
            | u8::from(dup) << 3
            | (self.qos as u8) << QOS_SHIFT
            | u8::from(self.retain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};
    use crate::{MAX_PACKET_LEN, ReasonCode, TopicError};

    fn plain() -> Publish<'static> {
        Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "a/b",
            packet_id: None,
            properties: Properties::EMPTY,
            payload: b"hi",
        }
    }

    #[test]
    fn the_versions() {
        let v3 = b"\x30\x07\0\x03a/bhi";
        check(Version::V3_1, &Packet::Publish(plain()), v3);
        check(Version::V3_1_1, &Packet::Publish(plain()), v3);
        check(Version::V5, &Packet::Publish(plain()), b"\x30\x08\0\x03a/b\0hi");
    }

    #[test]
    fn all_flags_and_properties() {
        let publish = Publish {
            dup: true,
            qos: QoS::ExactlyOnce,
            retain: true,
            packet_id: PacketId::new(0x1234),
            properties: Properties::from_validated(&[0x01, 1]),
            payload: b"",
            ..plain()
        };
        check(Version::V5, &Packet::Publish(publish), b"\x3D\x0A\0\x03a/b\x12\x34\x02\x01\x01");
    }

    #[test]
    fn mqtt_3_3_1_flags_that_contradict() {
        assert_eq!(decode(Version::V5, b"\x36\x03\0\x01a"), Err(DecodeError::QoS3));
        assert_eq!(decode(Version::V5, b"\x38\x04\0\x01a\0"), Err(DecodeError::DupWithQoS0));
        let mut out = Vec::new();
        Publish { dup: true, ..plain() }.encode(Version::V5, &mut out).unwrap();
        assert_eq!(out[0], 0x30, "DUP means nothing with QoS 0");
    }

    #[test]
    fn mqtt_2_2_1_packet_identifiers() {
        let zero = b"\x32\x05\0\x01a\0\0";
        assert_eq!(decode(Version::V3_1_1, zero), Err(DecodeError::PacketIdZero));
        let publish = Publish { qos: QoS::AtLeastOnce, ..plain() };
        let mut out = Vec::new();
        assert_eq!(publish.encode(Version::V5, &mut out), Err(EncodeError::NoPacketId));
        let publish = Publish { packet_id: PacketId::new(1), ..plain() };
        publish.encode(Version::V3_1_1, &mut out).unwrap();
        assert_eq!(out, b"\x30\x07\0\x03a/bhi", "QoS 0 has no Packet Identifier");
    }

    #[test]
    fn mqtt_3_3_2_2_a_topic_is_a_name() {
        for (bytes, reason) in [
            (&b"\x30\x04\0\x01#\0"[..], ReasonCode::TopicNameInvalid),
            (b"\x30\x06\0\x03a/+\0", ReasonCode::TopicNameInvalid),
            (b"\x30\x04\0\x01\0\0", ReasonCode::MalformedPacket),
            (b"\x30\x04\0\x01\xFF\0", ReasonCode::MalformedPacket),
        ] {
            assert_eq!(decode(Version::V5, bytes).unwrap_err().reason_code(), reason);
        }
    }

    #[test]
    fn mqtt_3_3_2_3_4_only_an_alias_replaces_the_topic() {
        let publish = Publish {
            topic: "",
            properties: Properties::from_validated(&[0x23, 0, 1]),
            payload: b"",
            ..plain()
        };
        check(Version::V5, &Packet::Publish(publish), b"\x30\x06\0\0\x03\x23\0\x01");
        assert_eq!(decode(Version::V5, b"\x30\x03\0\0\0"), Err(DecodeError::NoTopic));
        assert_eq!(
            decode(Version::V3_1_1, b"\x30\x02\0\0"),
            Err(DecodeError::TopicName(TopicError::Empty))
        );
    }

    #[test]
    fn a_known_topic_changes_nothing_but_the_work() {
        for (bytes, known) in [
            (&b"\x30\x08\0\x03a/b\0hi"[..], "a/b"),
            (b"\x30\x08\0\x03a/b\0hi", "a/c"),
            (b"\x30\x08\0\x03a/#\0hi", "a/b"),
            (b"\x30\x08\0\x03a/\0\0hi", ""),
        ] {
            let header = FixedHeader::read(bytes, MAX_PACKET_LEN).unwrap().unwrap();
            let body = &bytes[header.header_len..];
            assert_eq!(
                Publish::decode_with_known_topic(Version::V5, header, body, known),
                Publish::decode(Version::V5, header, body)
            );
            assert_eq!(Publish::topic_bytes(body), Some(&bytes[4..7]));
        }
        assert_eq!(Publish::topic_bytes(&[0, 1]), None);
    }

    #[test]
    fn the_header_counts_the_payload_it_does_not_contain() {
        let payload = vec![7; 300];
        let publish = Publish { payload: &payload, ..plain() };
        let mut whole = Vec::new();
        publish.encode(Version::V5, &mut whole).unwrap();
        let mut header = Vec::new();
        publish.encode_header(Version::V5, &mut header).unwrap();
        assert_eq!(whole[..header.len()], header);
        assert_eq!(whole[header.len()..], payload);
    }

    #[test]
    fn a_payload_that_claims_to_be_utf_8_can_be_checked() {
        let publish = Publish { payload: b"\xFF", ..plain() };
        assert_eq!(publish.check_payload_format(), Ok(()));
        let properties = Properties::from_validated(&[0x01, 1]);
        let publish = Publish { properties, ..publish };
        assert_eq!(publish.check_payload_format(), Err(DecodeError::PayloadFormat));
    }
}
