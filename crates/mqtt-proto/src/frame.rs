use crate::wire::{put_varint, varint_len};
use crate::{DecodeError, EncodeError, Version};

/// The largest Remaining Length, in bytes: four bytes of seven bits (section 2.1.4).
pub const MAX_REMAINING_LENGTH: usize = 268_435_455;

/// Length of the largest possible packet in bytes, including the fixed header. As a limit for [`FixedHeader::read`] it
/// means "no limit".
pub const MAX_PACKET_LEN: usize = MAX_REMAINING_LENGTH + 5;

/// The types of control packets. The number is the upper half of a packet's first byte.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of the standard, section 2.1.2")]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The packet type in the upper half of `first`. Type 0 is reserved and gives `None`.
    #[inline]
    pub fn from_first_byte(first: u8) -> Option<Self> {
        Some(match first >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The first byte of a packet of this type. Not valid for PUBLISH, whose flags are not fixed.
    #[inline]
    pub fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.fixed_flags()
    }

    #[inline]
    fn fixed_flags(self) -> u8 {
        match self {
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    /// The name of the packet type in capitals, as in the standard.
    pub fn name(self) -> &'static str {
        match self {
            PacketType::Connect => "CONNECT",
            PacketType::ConnAck => "CONNACK",
            PacketType::Publish => "PUBLISH",
            PacketType::PubAck => "PUBACK",
            PacketType::PubRec => "PUBREC",
            PacketType::PubRel => "PUBREL",
            PacketType::PubComp => "PUBCOMP",
            PacketType::Subscribe => "SUBSCRIBE",
            PacketType::SubAck => "SUBACK",
            PacketType::Unsubscribe => "UNSUBSCRIBE",
            PacketType::UnsubAck => "UNSUBACK",
            PacketType::PingReq => "PINGREQ",
            PacketType::PingResp => "PINGRESP",
            PacketType::Disconnect => "DISCONNECT",
            PacketType::Auth => "AUTH",
        }
    }
}

/// The fixed header: the first two to five bytes of a packet (section 2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedHeader {
    /// Packet type and flags.
    pub first: u8,
    /// Length of the fixed header itself, 2 to 5 bytes.
    pub header_len: usize,
    /// Number of bytes after the fixed header: the Remaining Length.
    pub body_len: usize,
}

impl FixedHeader {
    /// Reads the fixed header of the packet at the start of `buf`. Returns `Ok(None)` if more bytes are needed.
    ///
    /// # Errors
    /// As soon as it is certain that no acceptable packet follows: type 0, flags that no version allows, a Remaining
    /// Length of more than four bytes, or a packet that is longer than `max_packet_size` bytes, including the header.
    #[inline]
    pub fn read(buf: &[u8], max_packet_size: usize) -> Result<Option<Self>, DecodeError> {
        let [first, length @ ..] = buf else { return Ok(None) };
        check_first_byte(*first)?;
        let mut body_len = 0;
        for (i, &byte) in length.iter().take(4).enumerate() {
            body_len |= usize::from(byte & 0x7F) << (7 * i);
            if byte & 0x80 == 0 {
                let header = FixedHeader { first: *first, header_len: i + 2, body_len };
                if header.packet_len() > max_packet_size {
                    return Err(DecodeError::TooLarge);
                }
                return Ok(Some(header));
            }
        }
        if length.len() < 4 { Ok(None) } else { Err(DecodeError::RemainingLengthTooLong) }
    }

    /// Splits packets, one behind the other, into the header and the body of the first, and those behind it. Returns `None` if there
    /// is no whole packet at the start.
    pub fn split(packets: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let header = Self::read(packets, MAX_PACKET_LEN).ok()??;
        let (packet, behind) = packets.split_at_checked(header.packet_len())?;
        Some((header, &packet[header.header_len..], behind))
    }

    /// The type of the packet.
    ///
    /// # Panics
    /// If the type is 0. [`FixedHeader::read`] never returns such a header.
    #[inline]
    pub fn packet_type(&self) -> PacketType {
        PacketType::from_first_byte(self.first).expect("read() refuses type 0")
    }

    /// Length of the whole packet in bytes.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.header_len + self.body_len
    }

    /// Checks what [`FixedHeader::read`] cannot check without knowing the version, and that `body` is the complete
    /// body.
    #[inline]
    pub(crate) fn check(&self, version: Version, body: &[u8]) -> Result<(), DecodeError> {
        if body.len() != self.body_len {
            return Err(if body.len() < self.body_len {
                DecodeError::Truncated
            } else {
                DecodeError::TrailingBytes
            });
        }
        // Only MQTT 5 requires the shortest form (MQTT-1.5.5-1).
        if version.is_v5() && self.header_len != 1 + varint_len(self.body_len) {
            return Err(DecodeError::VariableByteInteger);
        }
        // MQTT 3.1 has a DUP flag in other packets than PUBLISH, too, and does not specify the flags of CONNECT.
        let packet_type = self.packet_type();
        if packet_type != PacketType::Publish
            && self.first != packet_type.first_byte()
            && version != Version::V3_1
        {
            return Err(DecodeError::ReservedHeaderFlags);
        }
        Ok(())
    }

    /// Appends a fixed header in its shortest form.
    ///
    /// # Errors
    /// [`EncodeError::PacketTooLong`] if `body_len` is above [`MAX_REMAINING_LENGTH`].
    #[inline]
    pub fn put(first: u8, body_len: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if body_len > MAX_REMAINING_LENGTH {
            return Err(EncodeError::PacketTooLong);
        }
        out.push(first);
        put_varint(body_len as u32, out);
        Ok(())
    }
}

/// Refuses type 0, and flags that are wrong in all versions.
#[inline]
pub(crate) fn check_first_byte(first: u8) -> Result<(), DecodeError> {
    let packet_type = PacketType::from_first_byte(first).ok_or(DecodeError::UnknownPacketType)?;
    let flags = first & 0x0F;
    match packet_type {
        PacketType::Connect | PacketType::Publish => Ok(()),
        PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe
            if flags & 0b0111 == 0b0010 =>
        {
            Ok(())
        }
        _ if flags == packet_type.fixed_flags() => Ok(()),
        _ => Err(DecodeError::ReservedHeaderFlags),
    }
}

/// Appends a packet whose body is written by `write_body`, with the length of the body before it.
///
/// One byte is reserved for the length. A longer length, which is rare outside PUBLISH, shifts the body. If
/// `write_body` fails, nothing is appended.
pub(crate) fn put_packet(
    packet_type: PacketType,
    out: &mut Vec<u8>,
    write_body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
    let body = out.len();
    let written = write_body(out).and_then(|()| {
        let body_len = out.len() - body;
        if body_len > MAX_REMAINING_LENGTH {
            return Err(EncodeError::PacketTooLong);
        }
        if body_len < 0x80 {
            out[start + 1] = body_len as u8;
        } else {
            let mut length = Vec::with_capacity(4);
            put_varint(body_len as u32, &mut length);
            out.splice(start + 1..body, length);
        }
        Ok(())
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_are_asked_for_until_the_length_ends() {
        for incomplete in [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0xFF, 0xFF, 0xFF]] {
            assert_eq!(FixedHeader::read(incomplete, MAX_PACKET_LEN), Ok(None));
        }
        let header = FixedHeader::read(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], MAX_PACKET_LEN);
        assert_eq!(
            header,
            Ok(Some(FixedHeader { first: 0x30, header_len: 5, body_len: MAX_REMAINING_LENGTH }))
        );
    }

    #[test]
    fn mqtt_1_5_5_1_five_length_bytes_are_malformed() {
        assert_eq!(
            FixedHeader::read(&[0x30, 0x80, 0x80, 0x80, 0x80], MAX_PACKET_LEN),
            Err(DecodeError::RemainingLengthTooLong)
        );
    }

    #[test]
    fn mqtt_1_5_5_1_a_padded_length_is_malformed_in_5_only() {
        let header = FixedHeader::read(&[0xC0, 0x80, 0x00], MAX_PACKET_LEN).unwrap().unwrap();
        assert_eq!(header.header_len, 3);
        assert_eq!(header.check(Version::V3_1_1, &[]), Ok(()));
        assert_eq!(header.check(Version::V5, &[]), Err(DecodeError::VariableByteInteger));
    }

    #[test]
    fn the_maximum_packet_size_counts_the_header() {
        assert!(FixedHeader::read(&[0x30, 8], 10).is_ok());
        assert_eq!(FixedHeader::read(&[0x30, 9], 10), Err(DecodeError::TooLarge));
    }

    #[test]
    fn mqtt_2_1_3_1_reserved_flags() {
        for first in 0..=u8::MAX {
            let only_in_3_1 = matches!(first, 0x6A | 0x8A | 0xAA | 0x11..=0x1F);
            let allowed = match first >> 4 {
                0 => false,
                1 | 3 => true,
                6 | 8 | 10 => first & 0x0F == 2 || only_in_3_1,
                _ => first & 0x0F == 0,
            };
            assert_eq!(FixedHeader::read(&[first, 0], 2).is_ok(), allowed, "0x{first:02X}");
            if only_in_3_1 {
                let header = FixedHeader { first, header_len: 2, body_len: 0 };
                assert!(header.check(Version::V3_1, &[]).is_ok());
                assert_eq!(
                    header.check(Version::V3_1_1, &[]),
                    Err(DecodeError::ReservedHeaderFlags)
                );
            }
        }
    }

    #[test]
    fn a_long_body_moves_to_make_room_for_its_length() {
        for len in [0, 127, 128, 16_383, 16_384, 2_097_152] {
            let mut out = vec![0xEE];
            put_packet(PacketType::SubAck, &mut out, |out| {
                out.resize(out.len() + len, 7);
                Ok(())
            })
            .unwrap();
            let header = FixedHeader::read(&out[1..], MAX_PACKET_LEN).unwrap().unwrap();
            assert_eq!((header.first, header.body_len), (0x90, len));
            assert_eq!(out.len(), 1 + header.packet_len());
            assert!(out[1 + header.header_len..].iter().all(|&b| b == 7));
        }
    }

    #[test]
    fn a_failed_packet_leaves_no_bytes() {
        let mut out = vec![1, 2];
        let failed = put_packet(PacketType::SubAck, &mut out, |out| {
            out.push(3);
            Err(EncodeError::EmptyPayload)
        });
        assert_eq!(failed, Err(EncodeError::EmptyPayload));
        assert_eq!(out, [1, 2]);
    }
}
