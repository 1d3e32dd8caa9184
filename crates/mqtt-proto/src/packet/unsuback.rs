use super::{put_properties, read_codes, read_packet_id};
use crate::frame::put_packet;
use crate::wire::{Reader, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, ReasonCode, Version,
};

/// UNSUBACK: the answer to an UNSUBSCRIBE (section 3.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    /// The Packet Identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// One [`ReasonCode`] for each topic filter, in their order. Before MQTT 5 there are none, and
    /// nothing is written.
    pub codes: &'a [u8],
}

impl<'a> UnsubAck<'a> {
    /// Decodes the body of an UNSUBACK.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let packet_id = read_packet_id(reader)?;
        if !version.is_v5() {
            reader.finish()?;
            return Ok(UnsubAck { packet_id, properties: Properties::EMPTY, codes: &[] });
        }
        let properties = Properties::decode(reader, PropertySet::UNSUBACK)?;
        let codes = read_codes(reader, is_allowed)?;
        Ok(UnsubAck { packet_id, properties, codes })
    }

    /// Appends the packet. Appends nothing on error.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version.is_v5() && self.codes.is_empty() {
            return Err(EncodeError::EmptyPayload);
        }
        put_packet(PacketType::UnsubAck, out, |out| {
            put_u16(self.packet_id.get(), out);
            put_properties(version, self.properties, out)?;
            if version.is_v5() {
                out.extend_from_slice(self.codes);
            }
            Ok(())
        })
    }
}

/// The reason codes of an UNSUBACK: section 3.11.3.
fn is_allowed(reason: ReasonCode) -> bool {
    matches!(reason as u8, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    fn unsuback(codes: &[u8]) -> Packet<'_> {
        Packet::UnsubAck(UnsubAck {
            packet_id: PacketId::new(4).unwrap(),
            properties: Properties::EMPTY,
            codes,
        })
    }

    #[test]
    fn the_versions() {
        check(Version::V3_1, &unsuback(&[]), &[0xB0, 2, 0, 4]);
        check(Version::V3_1_1, &unsuback(&[]), &[0xB0, 2, 0, 4]);
        check(Version::V5, &unsuback(&[0, 0x11]), &[0xB0, 5, 0, 4, 0, 0, 0x11]);
        let mut out = Vec::new();
        unsuback(&[0]).encode(Version::V3_1_1, &mut out).unwrap();
        assert_eq!(out, [0xB0, 2, 0, 4], "MQTT 3 has no codes");
    }

    #[test]
    fn codes() {
        assert_eq!(decode(Version::V5, &[0xB0, 4, 0, 4, 0, 1]), Err(DecodeError::ReasonCode(1)));
        assert_eq!(decode(Version::V5, &[0xB0, 3, 0, 4, 0]), Err(DecodeError::EmptyPayload));
        let trailing = decode(Version::V3_1_1, &[0xB0, 3, 0, 4, 0]);
        assert_eq!(trailing, Err(DecodeError::TrailingBytes));
        let empty = unsuback(&[]).encode(Version::V5, &mut Vec::new());
        assert_eq!(empty, Err(EncodeError::EmptyPayload));
    }
}
