use super::{put_properties, read_codes, read_packet_id, read_properties};
use crate::frame::put_packet;
use crate::wire::{Reader, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, ReasonCode, Version,
};

/// SUBACK: the answer to a SUBSCRIBE (section 3.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// The Packet Identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// One [`ReasonCode`] for each topic filter, in their order. MQTT 3 has only the failure code
    /// 0x80, so every failure is written as 0x80 there.
    pub codes: &'a [u8],
}

impl<'a> SubAck<'a> {
    /// Decodes the body of a SUBACK.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let packet_id = read_packet_id(reader)?;
        let properties = read_properties(version, reader, PropertySet::SUBACK)?;
        let codes = read_codes(reader, |reason| is_allowed(version, reason))?;
        Ok(SubAck { packet_id, properties, codes })
    }

    /// Appends the packet. Appends nothing on error.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.codes.is_empty() {
            return Err(EncodeError::EmptyPayload);
        }
        put_packet(PacketType::SubAck, out, |out| {
            put_u16(self.packet_id.get(), out);
            put_properties(version, self.properties, out)?;
            if version.is_v5() {
                out.extend_from_slice(self.codes);
            } else {
                out.extend(self.codes.iter().map(|&code| code.min(0x80)));
            }
            Ok(())
        })
    }
}

/// The reason codes of a SUBACK: section 3.9.3, and section 3.9.3 of MQTT 3.1.1.
fn is_allowed(version: Version, reason: ReasonCode) -> bool {
    match reason as u8 {
        0x00..=0x02 | 0x80 => true,
        0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2 => version.is_v5(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    fn suback(codes: &[u8]) -> Packet<'_> {
        Packet::SubAck(SubAck {
            packet_id: PacketId::new(9).unwrap(),
            properties: Properties::EMPTY,
            codes,
        })
    }

    #[test]
    fn the_versions() {
        let granted = suback(&[0, 1, 2, 0x80]);
        check(Version::V3_1, &granted, &[0x90, 6, 0, 9, 0, 1, 2, 0x80]);
        check(Version::V3_1_1, &granted, &[0x90, 6, 0, 9, 0, 1, 2, 0x80]);
        check(Version::V5, &suback(&[2, 0x87]), &[0x90, 5, 0, 9, 0, 2, 0x87]);
        let mut out = Vec::new();
        suback(&[2, 0x87]).encode(Version::V3_1_1, &mut out).unwrap();
        assert_eq!(out, [0x90, 4, 0, 9, 2, 0x80], "MQTT 3 has one failure code");
    }

    #[test]
    fn mqtt_3_9_3_2_codes_that_do_not_exist() {
        for (version, code) in
            [(Version::V3_1_1, 3), (Version::V3_1_1, 0x87), (Version::V3_1, 0x81)]
        {
            assert_eq!(decode(version, &[0x90, 3, 0, 9, code]), Err(DecodeError::ReasonCode(code)));
        }
        for code in [0x03, 0x04, 0x11, 0x81, 0x99, 0xFF] {
            assert_eq!(
                decode(Version::V5, &[0x90, 4, 0, 9, 0, code]),
                Err(DecodeError::ReasonCode(code))
            );
        }
    }

    #[test]
    fn there_is_a_code() {
        assert_eq!(decode(Version::V3_1_1, &[0x90, 2, 0, 9]), Err(DecodeError::EmptyPayload));
        assert_eq!(decode(Version::V5, &[0x90, 3, 0, 9, 0]), Err(DecodeError::EmptyPayload));
        let empty = suback(&[]).encode(Version::V5, &mut Vec::new());
        assert_eq!(empty, Err(EncodeError::EmptyPayload));
    }
}
