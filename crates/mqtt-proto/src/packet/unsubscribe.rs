use super::{put_properties, read_packet_id, read_properties};
use crate::frame::put_packet;
use crate::wire::{Reader, put_str, put_u16};
use crate::{DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, Version};

/// UNSUBSCRIBE: the end of subscriptions (section 3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Which UNSUBACK answers it.
    pub packet_id: PacketId,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// The filters as they were subscribed to, not checked; at least one.
    pub filters: Vec<&'a str>,
}

impl<'a> Unsubscribe<'a> {
    /// Decodes the body of an UNSUBSCRIBE.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let packet_id = read_packet_id(reader)?;
        let properties = read_properties(version, reader, PropertySet::UNSUBSCRIBE)?;
        let mut filters = Vec::new();
        while !reader.is_empty() {
            filters.push(reader.str()?);
        }
        if filters.is_empty() {
            return Err(DecodeError::EmptyPayload);
        }
        Ok(Unsubscribe { packet_id, properties, filters })
    }

    /// Appends the packet, or nothing.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(EncodeError::EmptyPayload);
        }
        put_packet(PacketType::Unsubscribe, out, |out| {
            put_u16(self.packet_id.get(), out);
            put_properties(version, self.properties, out)?;
            self.filters.iter().try_for_each(|filter| put_str(filter, out))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    #[test]
    fn the_versions() {
        let unsubscribe = Packet::Unsubscribe(Unsubscribe {
            packet_id: PacketId::new(3).unwrap(),
            properties: Properties::EMPTY,
            filters: vec!["a/#", "b"],
        });
        let v3 = b"\xA2\x0A\0\x03\0\x03a/#\0\x01b";
        check(Version::V3_1, &unsubscribe, v3);
        check(Version::V3_1_1, &unsubscribe, v3);
        check(Version::V5, &unsubscribe, b"\xA2\x0B\0\x03\0\0\x03a/#\0\x01b");
    }

    #[test]
    fn mqtt_3_10_3_2_there_is_a_filter() {
        let bytes = &[0xA2, 3, 0, 1, 0];
        assert_eq!(decode(Version::V5, bytes), Err(DecodeError::EmptyPayload));
        assert_eq!(decode(Version::V3_1_1, &[0xA2, 2, 0, 1]), Err(DecodeError::EmptyPayload));
        let empty = Unsubscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: Vec::new(),
        };
        assert_eq!(empty.encode(Version::V5, &mut Vec::new()), Err(EncodeError::EmptyPayload));
    }

    #[test]
    fn it_carries_user_properties_only() {
        let bytes = &[0xA2, 8, 0, 1, 2, 0x0B, 1, 0, 1, b'a'];
        assert!(matches!(decode(Version::V5, bytes), Err(DecodeError::PropertyNotAllowed(_))));
    }
}
