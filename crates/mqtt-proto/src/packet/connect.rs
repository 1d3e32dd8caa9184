use super::{put_properties, read_properties};
use crate::frame::{FixedHeader, put_packet};
use crate::topic;
use crate::wire::{Reader, put_bytes, put_str, put_u16};
use crate::{DecodeError, EncodeError, PacketType, Properties, PropertySet, QoS, Version};

const RESERVED: u8 = 0x01;
const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_QOS_SHIFT: u8 = 3;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

/// The bit that bridges of MQTT 3 add to the protocol level.
const BRIDGE: u8 = 0x80;

/// CONNECT: the first packet of a connection (section 3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version of this connection.
    pub version: Version,
    /// Whether the client is a bridge: another broker. In MQTT 3, where a subscription has no options, bridges of
    /// Mosquitto indicate this by the bit 0x80 of the protocol level, which is not in any standard. Bridges of MQTT 5
    /// do not indicate it.
    pub is_bridge: bool,
    /// Clean Start; in MQTT 3 Clean Session.
    pub clean_start: bool,
    /// Keep Alive: the longest time between two packets of the client, in seconds. 0: no limit.
    pub keep_alive: u16,
    /// The client identifier. It may be empty, which a server need not accept.
    pub client_id: &'a str,
    /// The will, which is published when the connection ends without a DISCONNECT.
    pub will: Option<Will<'a>>,
    /// The user name.
    pub username: Option<&'a str>,
    /// The password: any bytes.
    pub password: Option<&'a [u8]>,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
}

/// The Will Message of a CONNECT (section 3.1.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// The QoS with which the will is published.
    pub qos: QoS,
    /// Whether the will is published as a retained message.
    pub retain: bool,
    /// The topic name of the will.
    pub topic: &'a str,
    /// The payload of the will.
    pub payload: &'a [u8],
    /// The properties of the will, in MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Connect<'a> {
    /// Decodes a CONNECT of any version. `body` is everything after the `header`.
    ///
    /// # Errors
    /// [`DecodeError::UnsupportedVersion`] as soon as the protocol name and level have been read and are not those of
    /// one of the three versions. [`Connect::refusal_version`] tells in which version to answer this error. Reserved
    /// flags are not an error in MQTT 3.1, which does not specify their values.
    pub fn decode(header: FixedHeader, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let name = reader.bytes()?;
        let level = reader.u8()?;
        let is_bridge = is_level_of_bridge(level);
        let level = if is_bridge { level & !BRIDGE } else { level };
        let version = Version::from_protocol(name, level).ok_or(DecodeError::UnsupportedVersion)?;
        header.check(version, body)?;
        let flags = reader.u8()?;
        if flags & RESERVED != 0 && version != Version::V3_1 {
            return Err(DecodeError::ReservedConnectFlag);
        }
        let keep_alive = reader.u16()?;
        let properties = read_properties(version, reader, PropertySet::CONNECT)?;
        let client_id = reader.str()?;
        let will = Will::decode(version, flags, reader)?;
        // In MQTT 3.1 the end of the packet takes precedence over the flags (section 3.1 of MQTT 3.1).
        let missing = |reader: &Reader<'_>| version == Version::V3_1 && reader.is_empty();
        let username = match flags & USER_NAME != 0 && !missing(reader) {
            true => Some(reader.str()?),
            false => None,
        };
        let password = match flags & PASSWORD != 0 && !missing(reader) {
            true => Some(reader.bytes()?),
            false => None,
        };
        if flags & PASSWORD != 0 && flags & USER_NAME == 0 && !version.is_v5() {
            return Err(DecodeError::PasswordWithoutUserName);
        }
        reader.finish()?;
        Ok(Connect {
            version,
            is_bridge,
            clean_start: flags & CLEAN_START != 0,
            keep_alive,
            client_id,
            will,
            username,
            password,
            properties,
        })
    }

    /// The version in which to answer a CONNECT that cannot be decoded: MQTT 5 if the client names a protocol level of
    /// 5 or more, else 3.1.1.
    pub fn refusal_version(body: &[u8]) -> Version {
        let mut reader = Reader::new(body);
        let level = reader.bytes().and_then(|_| reader.u8());
        if level.is_ok_and(|level| level >= Version::V5 as u8 && !is_level_of_bridge(level)) {
            Version::V5
        } else {
            Version::V3_1_1
        }
    }

    /// Appends the packet, in its own version. Appends nothing on error.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.password.is_some() && self.username.is_none() && !self.version.is_v5() {
            return Err(EncodeError::PasswordWithoutUserName);
        }
        put_packet(PacketType::Connect, out, |out| {
            put_str(self.version.protocol_name(), out)?;
            let bridge = if self.is_bridge && !self.version.is_v5() { BRIDGE } else { 0 };
            out.extend_from_slice(&[self.version as u8 | bridge, self.flags()]);
            put_u16(self.keep_alive, out);
            put_properties(self.version, self.properties, out)?;
            put_str(self.client_id, out)?;
            if let Some(will) = &self.will {
                put_properties(self.version, will.properties, out)?;
                put_str(will.topic, out)?;
                put_bytes(will.payload, out)?;
            }
            if let Some(username) = self.username {
                put_str(username, out)?;
            }
            if let Some(password) = self.password {
                put_bytes(password, out)?;
            }
            Ok(())
        })
    }

    fn flags(&self) -> u8 {
        let mut flags = 0;
        if self.clean_start {
            flags |= CLEAN_START;
        }
        if let Some(will) = &self.will {
            flags |= WILL | (will.qos as u8) << WILL_QOS_SHIFT;
            if will.retain {
                flags |= WILL_RETAIN;
            }
        }
        if self.username.is_some() {
            flags |= USER_NAME;
        }
        if self.password.is_some() {
            flags |= PASSWORD;
        }
        flags
    }
}

fn is_level_of_bridge(level: u8) -> bool {
    [Version::V3_1, Version::V3_1_1].map(|version| version as u8 | BRIDGE).contains(&level)
}

impl<'a> Will<'a> {
    fn decode(
        version: Version,
        flags: u8,
        reader: &mut Reader<'a>,
    ) -> Result<Option<Self>, DecodeError> {
        if flags & WILL == 0 && version == Version::V3_1 {
            // Section 3.1 of MQTT 3.1: without the Will Flag, the other flags of the will are ignored.
            return Ok(None);
        }
        let qos = QoS::try_from(flags >> WILL_QOS_SHIFT & 3)?;
        let retain = flags & WILL_RETAIN != 0;
        if flags & WILL == 0 {
            let consistent = qos == QoS::AtMostOnce && !retain;
            return if consistent { Ok(None) } else { Err(DecodeError::WillFlagsWithoutWill) };
        }
        let properties = read_properties(version, reader, PropertySet::WILL)?;
        let topic = topic::decode_name(reader.bytes()?)?;
        let payload = reader.bytes()?;
        Ok(Some(Will { qos, retain, topic, payload, properties }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};
    use crate::{ReasonCode, TopicError};

    fn plain(version: Version) -> Connect<'static> {
        Connect {
            version,
            is_bridge: false,
            clean_start: true,
            keep_alive: 60,
            client_id: "c",
            will: None,
            username: None,
            password: None,
            properties: Properties::EMPTY,
        }
    }

    #[test]
    fn the_three_versions() {
        for (version, bytes) in [
            (Version::V3_1, &b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3C\0\x01c"[..]),
            (Version::V3_1_1, b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01c"),
            (Version::V5, b"\x10\x0E\0\x04MQTT\x05\x02\0\x3C\0\0\x01c"),
        ] {
            // The version of the connection is not known before the CONNECT, so it must not affect the result.
            check(Version::V3_1, &Packet::Connect(plain(version)), bytes);
            check(Version::V5, &Packet::Connect(plain(version)), bytes);
        }
    }

    #[test]
    fn everything_at_once() {
        let will = Will {
            qos: QoS::ExactlyOnce,
            retain: true,
            topic: "w",
            payload: b"\0\xFF",
            properties: Properties::from_validated(&[0x18, 0, 0, 0, 9]),
        };
        let connect = Connect {
            clean_start: false,
            will: Some(will),
            username: Some("u"),
            password: Some(b"\xFE"),
            properties: Properties::from_validated(&[0x11, 0, 0, 0, 5]),
            ..plain(Version::V5)
        };
        check(
            Version::V5,
            &Packet::Connect(connect),
            b"\x10\x26\0\x04MQTT\x05\xF4\0\x3C\x05\x11\0\0\0\x05\0\x01c\
              \x05\x18\0\0\0\x09\0\x01w\0\x02\0\xFF\0\x01u\0\x01\xFE",
        );
    }

    #[test]
    fn mqtt_3_1_2_2_unsupported_versions_are_told_apart_from_malformed_ones() {
        for bytes in [
            &b"\x10\x0C\0\x04MQTT\x06\x02\0\x3C\0\0"[..],
            b"\x10\x0C\0\x04MQTT\x85\x02\0\x3C\0\0",
            b"\x10\x07\0\x04MQTT\x03",
            b"\x10\x07\0\x04MQTT\x83",
            b"\x10\x07\0\x04HTTP\x04",
            b"\x10\x07\0\x04\xFF\xFF\xFF\xFF\x04",
        ] {
            let error = decode(Version::V5, bytes).unwrap_err();
            assert_eq!(error, DecodeError::UnsupportedVersion);
            assert_eq!(error.reason_code(), ReasonCode::UnsupportedProtocolVersion);
        }
        assert_eq!(Connect::refusal_version(b"\0\x04MQTT\x06\x02"), Version::V5);
        assert_eq!(Connect::refusal_version(b"\0\x04MQTT\x03\x02"), Version::V3_1_1);
        assert_eq!(Connect::refusal_version(b"\0\x04MQ"), Version::V3_1_1);
    }

    #[test]
    fn bridges_of_mqtt_3_say_so_in_the_level() {
        for (version, bytes) in [
            (Version::V3_1, &b"\x10\x0F\0\x06MQIsdp\x83\x02\0\x3C\0\x01c"[..]),
            (Version::V3_1_1, b"\x10\x0D\0\x04MQTT\x84\x02\0\x3C\0\x01c"),
        ] {
            let connect = Connect { is_bridge: true, ..plain(version) };
            check(Version::V5, &Packet::Connect(connect), bytes);
        }
        for body in [&b"\0\x04MQTT\x84\x01"[..], b"\0\x06MQIsdp\x83"] {
            assert_eq!(Connect::refusal_version(body), Version::V3_1_1);
        }
        assert_eq!(Connect::refusal_version(b"\0\x04MQTT\x85\x02"), Version::V5);
    }

    #[test]
    fn mqtt_3_1_disregards_reserved_flags_and_those_of_a_will_that_is_not_there() {
        for flags in [0x03, 0x0A, 0x22, 0x1A, 0x3B] {
            let mut bytes = b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3C\0\x01c".to_vec();
            bytes[11] = flags;
            let packet = decode(Version::V3_1, &bytes);
            assert_eq!(packet, Ok(Packet::Connect(plain(Version::V3_1))), "{flags:#x}");
        }
    }

    #[test]
    fn only_mqtt_3_1_disregards_the_flags_of_the_fixed_header() {
        for flags in 1..=0x0F {
            let mut old = *b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3C\0\x01c";
            old[0] |= flags;
            let packet = decode(Version::V3_1, &old);
            assert_eq!(packet, Ok(Packet::Connect(plain(Version::V3_1))), "{flags:#x}");
            let mut new = *b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01c";
            new[0] |= flags;
            let refused = decode(Version::V3_1, &new);
            assert_eq!(refused, Err(DecodeError::ReservedHeaderFlags), "{flags:#x}");
        }
    }

    #[test]
    fn flags_that_contradict() {
        for (flags, error) in [
            (0x03, DecodeError::ReservedConnectFlag),
            (0x08, DecodeError::WillFlagsWithoutWill),
            (0x20, DecodeError::WillFlagsWithoutWill),
            (0x1C, DecodeError::QoS3),
            (0x18, DecodeError::QoS3),
        ] {
            for level in [4, 5] {
                let bytes = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', level, flags, 0, 0, 0, 0, 0];
                assert_eq!(decode(Version::V5, &bytes), Err(error), "{flags:02X}");
            }
        }
    }

    #[test]
    fn mqtt_3_1_2_22_a_password_needs_a_user_name_before_5() {
        let v3 = b"\x10\x0F\0\x04MQTT\x04\x40\0\0\0\0\0\x01p";
        assert_eq!(decode(Version::V3_1_1, v3), Err(DecodeError::PasswordWithoutUserName));
        let connect = Connect { password: Some(b"p"), ..plain(Version::V5) };
        check(
            Version::V5,
            &Packet::Connect(connect.clone()),
            b"\x10\x11\0\x04MQTT\x05\x42\0\x3C\0\0\x01c\0\x01p",
        );
        let connect = Connect { version: Version::V3_1, ..connect };
        assert_eq!(connect.encode(&mut Vec::new()), Err(EncodeError::PasswordWithoutUserName));
    }

    #[test]
    fn in_3_1_the_end_of_the_packet_outranks_the_flags() {
        let bytes = b"\x10\x0F\0\x06MQIsdp\x03\xC2\0\x3C\0\x01c";
        assert_eq!(decode(Version::V3_1, bytes), Ok(Packet::Connect(plain(Version::V3_1))));
        let bytes = b"\x10\x0D\0\x04MQTT\x04\xC2\0\x3C\0\x01c";
        assert_eq!(decode(Version::V3_1, bytes), Err(DecodeError::Truncated));
    }

    #[test]
    fn the_topic_of_a_will_is_a_name() {
        let bytes = b"\x10\x14\0\x04MQTT\x04\x06\0\0\0\0\0\x03a/#\0\x01p";
        assert_eq!(
            decode(Version::V3_1_1, bytes),
            Err(DecodeError::TopicName(TopicError::WildcardInName))
        );
    }

    #[test]
    fn nothing_follows_the_last_field() {
        let bytes = b"\x10\x0E\0\x04MQTT\x04\x02\0\x3C\0\x01cX";
        assert_eq!(decode(Version::V3_1_1, bytes), Err(DecodeError::TrailingBytes));
    }

    #[test]
    fn too_long_a_field_leaves_no_bytes() {
        let long = vec![0; 65_536];
        let connect = Connect { username: Some(""), password: Some(&long), ..plain(Version::V5) };
        let mut out = Vec::new();
        assert_eq!(connect.encode(&mut out), Err(EncodeError::FieldTooLong));
        assert!(out.is_empty());
    }
}
