use super::{put_properties, read_properties, read_reason};
use crate::frame::put_packet;
use crate::wire::Reader;
use crate::{
    ConnectReturnCode, DecodeError, EncodeError, PacketType, Properties, PropertySet, ReasonCode,
    Version,
};

/// CONNACK: the answer to a CONNECT (section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// Whether the server has a session of the client. Not sent in MQTT 3.1, nor with a refusal.
    pub session_present: bool,
    /// Whether the connection is accepted; sent as a [`ConnectReturnCode`] in MQTT 3.
    pub reason: ReasonCode,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    /// Decodes the body of a CONNACK.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let flags = reader.u8()?;
        if flags > 1 {
            return Err(DecodeError::ReservedConnAckFlags);
        }
        let reason = match version {
            Version::V5 => read_reason(reader, is_allowed)?,
            Version::V3_1 | Version::V3_1_1 => read_return_code(reader)?,
        };
        let session_present = flags == 1 && version != Version::V3_1;
        if session_present && reason != ReasonCode::Success {
            return Err(DecodeError::SessionPresentOnRefusal);
        }
        let properties = read_properties(version, reader, PropertySet::CONNACK)?;
        reader.finish()?;
        Ok(ConnAck { session_present, reason, properties })
    }

    /// Appends the packet. Appends nothing on error.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_packet(PacketType::ConnAck, out, |out| {
            let session_present = self.session_present
                && self.reason == ReasonCode::Success
                && version != Version::V3_1;
            out.push(u8::from(session_present));
            out.push(match version {
                Version::V5 => self.reason as u8,
                Version::V3_1 | Version::V3_1_1 => ConnectReturnCode::from(self.reason) as u8,
            });
            put_properties(version, self.properties, out)
        })
    }
}

fn read_return_code(reader: &mut Reader<'_>) -> Result<ReasonCode, DecodeError> {
    let code = reader.u8()?;
    ConnectReturnCode::from_u8(code).map(ReasonCode::from).ok_or(DecodeError::ReasonCode(code))
}

/// The reason codes of a CONNACK: table 3-1.
fn is_allowed(reason: ReasonCode) -> bool {
    matches!(
        reason as u8,
        0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    #[test]
    fn the_versions_say_it_differently() {
        let refused = ConnAck {
            session_present: false,
            reason: ReasonCode::NotAuthorized,
            properties: Properties::EMPTY,
        };
        check(Version::V3_1, &Packet::ConnAck(refused.clone()), &[0x20, 2, 0, 5]);
        check(Version::V3_1_1, &Packet::ConnAck(refused.clone()), &[0x20, 2, 0, 5]);
        check(Version::V5, &Packet::ConnAck(refused), &[0x20, 3, 0, 0x87, 0]);
        let accepted = ConnAck {
            session_present: true,
            reason: ReasonCode::Success,
            properties: Properties::EMPTY,
        };
        check(Version::V3_1_1, &Packet::ConnAck(accepted.clone()), &[0x20, 2, 1, 0]);
        check(
            Version::V5,
            &Packet::ConnAck(ConnAck {
                properties: Properties::from_validated(&[0x13, 0, 9]),
                ..accepted
            }),
            &[0x20, 6, 1, 0, 3, 0x13, 0, 9],
        );
    }

    #[test]
    fn mqtt_3_2_2_6_no_session_is_present_when_refused() {
        for version in [Version::V3_1_1, Version::V5] {
            let mut out = Vec::new();
            ConnAck {
                session_present: true,
                reason: ReasonCode::ServerUnavailable,
                properties: Properties::EMPTY,
            }
            .encode(version, &mut out)
            .unwrap();
            assert_eq!(out[2], 0);
            out[2] = 1;
            assert_eq!(decode(version, &out), Err(DecodeError::SessionPresentOnRefusal));
        }
    }

    #[test]
    fn codes_and_flags_that_do_not_exist() {
        assert_eq!(
            decode(Version::V5, &[0x20, 3, 2, 0, 0]),
            Err(DecodeError::ReservedConnAckFlags)
        );
        assert_eq!(decode(Version::V3_1_1, &[0x20, 2, 0, 6]), Err(DecodeError::ReasonCode(6)));
        for code in [0x01, 0x04, 0x10, 0x8B, 0x8E, 0x93, 0x9E, 0xA0, 0xFF] {
            assert_eq!(
                decode(Version::V5, &[0x20, 3, 0, code, 0]),
                Err(DecodeError::ReasonCode(code))
            );
        }
        assert_eq!(decode(Version::V3_1_1, &[0x20, 3, 0, 0, 0]), Err(DecodeError::TrailingBytes));
    }
}
