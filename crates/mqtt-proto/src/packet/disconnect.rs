use super::{put_properties, read_reason};
use crate::frame::put_packet;
use crate::wire::Reader;
use crate::{DecodeError, EncodeError, PacketType, Properties, PropertySet, ReasonCode, Version};

/// DISCONNECT: the last packet of a connection (section 3.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// The reason for the disconnection, in MQTT 5; not written in older versions.
    pub reason: ReasonCode,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    /// Creates a DISCONNECT without properties.
    pub fn new(reason: ReasonCode) -> Self {
        Disconnect { reason, properties: Properties::EMPTY }
    }

    /// Decodes the body of a DISCONNECT.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let mut disconnect = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
        if version.is_v5() && !reader.is_empty() {
            disconnect.reason = read_reason(reader, is_allowed)?;
            if !reader.is_empty() {
                disconnect.properties = Properties::decode(reader, PropertySet::DISCONNECT)?;
            }
        }
        reader.finish()?;
        Ok(disconnect)
    }

    /// Appends the packet. Appends nothing on error. In MQTT 5 the shortest of the three forms is
    /// chosen.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_packet(PacketType::Disconnect, out, |out| {
            let normal = self.reason == ReasonCode::NORMAL_DISCONNECTION;
            if !version.is_v5() || (normal && self.properties.is_empty()) {
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

/// The reason codes of a DISCONNECT: table 3-10, and 0x8C from table 2-6.
fn is_allowed(reason: ReasonCode) -> bool {
    matches!(
        reason as u8,
        0x00 | 0x04
            | 0x80..=0x83
            | 0x87
            | 0x89
            | 0x8B..=0x8F
            | 0x90
            | 0x93..=0x99
            | 0x9A..=0xA2
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    #[test]
    fn the_three_forms() {
        let normal = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
        for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
            check(version, &normal, &[0xE0, 0]);
        }
        let taken_over = Disconnect::new(ReasonCode::SessionTakenOver);
        check(Version::V5, &Packet::Disconnect(taken_over.clone()), &[0xE0, 1, 0x8E]);
        let properties = Properties::from_validated(&[0x11, 0, 0, 0, 1]);
        check(
            Version::V5,
            &Packet::Disconnect(Disconnect { properties, ..taken_over.clone() }),
            &[0xE0, 7, 0x8E, 5, 0x11, 0, 0, 0, 1],
        );
        assert_eq!(decode(Version::V5, &[0xE0, 2, 0, 0]), Ok(normal));
        let mut out = Vec::new();
        taken_over.encode(Version::V3_1_1, &mut out).unwrap();
        assert_eq!(out, [0xE0, 0], "MQTT 3 gives no reason");
    }

    #[test]
    fn what_is_not_allowed() {
        let body = decode(Version::V3_1_1, &[0xE0, 1, 0]);
        assert_eq!(body, Err(DecodeError::TrailingBytes));
        for code in [0x01, 0x18, 0x84, 0x86, 0x88, 0x8A, 0x91, 0x92, 0xA3] {
            assert_eq!(decode(Version::V5, &[0xE0, 1, code]), Err(DecodeError::ReasonCode(code)));
        }
    }
}
