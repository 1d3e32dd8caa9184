use super::{put_properties, read_reason};
use crate::frame::put_packet;
use crate::wire::Reader;
use crate::{DecodeError, EncodeError, PacketType, Properties, PropertySet, ReasonCode, Version};

/// AUTH: a step of an enhanced authentication (section 3.15). Only in MQTT 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// Success, Continue authentication or Re-authenticate.
    pub reason: ReasonCode,
    /// Properties, including the Authentication Method.
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    /// Decodes the body of an AUTH. Only the empty body, which means success, may lack an
    /// Authentication Method (section 3.15.2.2.2).
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        if !version.is_v5() {
            return Err(DecodeError::UnknownPacketType);
        }
        let reader = &mut Reader::new(body);
        if reader.is_empty() {
            return Ok(Auth { reason: ReasonCode::Success, properties: Properties::EMPTY });
        }
        let reason = read_reason(reader, is_allowed)?;
        if reader.is_empty() {
            return Err(DecodeError::NoAuthenticationMethod);
        }
        let properties = Properties::decode(reader, PropertySet::AUTH)?;
        reader.finish()?;
        if properties.authentication_method().is_none() {
            return Err(DecodeError::NoAuthenticationMethod);
        }
        Ok(Auth { reason, properties })
    }

    /// Appends the packet. Appends nothing on error.
    ///
    /// # Errors
    /// [`EncodeError::NotInVersion`] before MQTT 5.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !version.is_v5() {
            return Err(EncodeError::NotInVersion);
        }
        put_packet(PacketType::Auth, out, |out| {
            if self.reason == ReasonCode::Success && self.properties.is_empty() {
                return Ok(());
            }
            out.push(self.reason as u8);
            put_properties(version, self.properties, out)
        })
    }
}

/// The reason codes of an AUTH: section 3.15.2.1.
fn is_allowed(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::Success | ReasonCode::ContinueAuthentication | ReasonCode::ReAuthenticate
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    #[test]
    fn it_names_its_method() {
        let auth = Auth {
            reason: ReasonCode::ContinueAuthentication,
            properties: Properties::from_validated(b"\x15\0\x01m\x16\0\x01d"),
        };
        check(Version::V5, &Packet::Auth(auth), b"\xF0\x0A\x18\x08\x15\0\x01m\x16\0\x01d");
        let without = decode(Version::V5, &[0xF0, 2, 0x18, 0]);
        assert_eq!(without, Err(DecodeError::NoAuthenticationMethod));
    }

    #[test]
    fn success_may_be_empty() {
        let auth = Auth { reason: ReasonCode::Success, properties: Properties::EMPTY };
        check(Version::V5, &Packet::Auth(auth), &[0xF0, 0]);
    }

    #[test]
    fn it_is_new_in_5() {
        assert_eq!(decode(Version::V3_1_1, &[0xF0, 0]), Err(DecodeError::UnknownPacketType));
        let auth = Auth { reason: ReasonCode::Success, properties: Properties::EMPTY };
        let old = auth.encode(Version::V3_1, &mut Vec::new());
        assert_eq!(old, Err(EncodeError::NotInVersion));
    }

    #[test]
    fn only_three_reasons() {
        assert_eq!(
            decode(Version::V5, b"\xF0\x06\x80\x04\x15\0\x01m"),
            Err(DecodeError::ReasonCode(0x80))
        );
    }
}
