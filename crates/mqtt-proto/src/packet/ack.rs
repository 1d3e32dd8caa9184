use super::{put_properties, read_packet_id, read_reason};
use crate::frame::put_packet;
use crate::wire::{Reader, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, ReasonCode, Version,
};

/// PUBACK, PUBREC, PUBREL or PUBCOMP: a step in the delivery of a QoS 1 or QoS 2 message (sections
/// 3.4 to 3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The Packet Identifier of the message.
    pub packet_id: PacketId,
    /// The result of this step, in MQTT 5; ignored in older versions.
    pub reason: ReasonCode,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    /// An acknowledgement of success without properties.
    #[inline]
    pub fn success(packet_id: PacketId) -> Self {
        Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY }
    }

    /// Decodes the body of a packet of type `packet_type`, which must be one of the four.
    pub fn decode(
        packet_type: PacketType,
        version: Version,
        body: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let mut ack = Ack::success(read_packet_id(reader)?);
        if version.is_v5() && !reader.is_empty() {
            ack.reason = read_reason(reader, allowed(packet_type))?;
            if !reader.is_empty() {
                ack.properties = Properties::decode(reader, PropertySet::ACK)?;
            }
        }
        reader.finish()?;
        Ok(ack)
    }

    /// Appends the packet as type `packet_type`, which must be one of the four. Appends nothing on
    /// error. In MQTT 5 the shortest of the three forms is chosen.
    pub fn encode(
        &self,
        packet_type: PacketType,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        put_packet(packet_type, out, |out| {
            put_u16(self.packet_id.get(), out);
            let silent = self.reason == ReasonCode::Success && self.properties.is_empty();
            if !version.is_v5() || silent {
                return Ok(());
            }
            out.push(self.reason as u8);
            if self.properties.is_empty() {
                return Ok(());
            }
            put_properties(version, self.properties, out)
        })
    }
}

/// The reason codes of each type: sections 3.4.2.1 to 3.7.2.1.
fn allowed(packet_type: PacketType) -> fn(ReasonCode) -> bool {
    match packet_type {
        PacketType::PubAck | PacketType::PubRec => |reason| {
            matches!(reason as u8, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
        },
        _ => |reason| matches!(reason, ReasonCode::Success | ReasonCode::PacketIdentifierNotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    type Make = for<'a> fn(Ack<'a>) -> Packet<'a>;
    const KINDS: [(u8, Make); 4] = [
        (0x40, |ack| Packet::PubAck(ack)),
        (0x50, |ack| Packet::PubRec(ack)),
        (0x62, |ack| Packet::PubRel(ack)),
        (0x70, |ack| Packet::PubComp(ack)),
    ];

    fn id(id: u16) -> PacketId {
        PacketId::new(id).unwrap()
    }

    #[test]
    fn success_is_two_bytes_in_every_version() {
        for (first, packet) in KINDS {
            for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
                check(version, &packet(Ack::success(id(0x0102))), &[first, 2, 1, 2]);
            }
        }
    }

    #[test]
    fn the_longer_forms_of_5() {
        for ((first, packet), reason) in KINDS.into_iter().zip([
            ReasonCode::NoMatchingSubscribers,
            ReasonCode::QuotaExceeded,
            ReasonCode::PacketIdentifierNotFound,
            ReasonCode::PacketIdentifierNotFound,
        ]) {
            let ack = Ack { reason, ..Ack::success(id(7)) };
            check(Version::V5, &packet(ack.clone()), &[first, 3, 0, 7, reason as u8]);
            let properties = Properties::from_validated(b"\x1F\0\x01x");
            check(
                Version::V5,
                &packet(Ack { properties, ..ack }),
                &[first, 8, 0, 7, reason as u8, 4, 0x1F, 0, 1, b'x'],
            );
            assert_eq!(
                decode(Version::V5, &[first, 4, 0, 7, 0, 0]),
                Ok(packet(Ack::success(id(7)))),
                "the long form of success is allowed too"
            );
        }
    }

    #[test]
    fn what_is_not_allowed() {
        for (first, _) in KINDS {
            assert_eq!(decode(Version::V5, &[first, 2, 0, 0]), Err(DecodeError::PacketIdZero));
            assert_eq!(
                decode(Version::V3_1_1, &[first, 3, 0, 1, 0]),
                Err(DecodeError::TrailingBytes)
            );
            assert_eq!(
                decode(Version::V5, &[first, 5, 0, 1, 0, 0, 0]),
                Err(DecodeError::TrailingBytes)
            );
        }
        assert_eq!(decode(Version::V5, &[0x40, 3, 0, 1, 0x92]), Err(DecodeError::ReasonCode(0x92)));
        assert_eq!(decode(Version::V5, &[0x62, 3, 0, 1, 0x97]), Err(DecodeError::ReasonCode(0x97)));
    }
}
