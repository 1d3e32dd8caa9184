//! The control packets (section 3), one file per type.

mod ack;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod publish;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;

pub use ack::Ack;
pub use auth::Auth;
pub use connack::ConnAck;
pub use connect::{Connect, Will};
pub use disconnect::Disconnect;
pub use publish::Publish;
pub use suback::SubAck;
pub use subscribe::{
    RetainHandling, Subscribe, SubscribeFilter, SubscribeFilters, SubscribeFiltersBuf,
    SubscriptionOptions,
};
pub use unsuback::UnsubAck;
pub use unsubscribe::{Unsubscribe, UnsubscribeFilters, UnsubscribeFiltersBuf};

use crate::frame::{check_first_byte, put_packet};
use crate::wire::{Reader, put_varint};
use crate::{
    DecodeError, EncodeError, FixedHeader, PacketId, PacketType, Properties, PropertySet,
    ReasonCode, Version,
};

/// A control packet; borrows from the bytes it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the standard, section 3")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

impl<'a> Packet<'a> {
    /// Decodes the packet with this `header`. `body` is everything after the header.
    ///
    /// `version` is that of the connection; a CONNECT has its own.
    pub fn decode(
        version: Version,
        header: FixedHeader,
        body: &'a [u8],
    ) -> Result<Packet<'a>, DecodeError> {
        check_first_byte(header.first)?;
        let packet_type = header.packet_type();
        match packet_type {
            PacketType::Publish => {
                return Publish::decode(version, header, body).map(Packet::Publish);
            }
            PacketType::Connect => {
                return Connect::decode(header, body).map(Packet::Connect);
            }
            _ => header.check(version, body)?,
        }
        Ok(match packet_type {
            PacketType::Connect | PacketType::Publish => unreachable!("returned above"),
            PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(version, body)?),
            PacketType::PubAck => Packet::PubAck(Ack::decode(packet_type, version, body)?),
            PacketType::PubRec => Packet::PubRec(Ack::decode(packet_type, version, body)?),
            PacketType::PubRel => Packet::PubRel(Ack::decode(packet_type, version, body)?),
            PacketType::PubComp => Packet::PubComp(Ack::decode(packet_type, version, body)?),
            PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(version, body)?),
            PacketType::SubAck => Packet::SubAck(SubAck::decode(version, body)?),
            PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(version, body)?),
            PacketType::UnsubAck => Packet::UnsubAck(UnsubAck::decode(version, body)?),
            PacketType::PingReq => Reader::new(body).finish().map(|()| Packet::PingReq)?,
            PacketType::PingResp => Reader::new(body).finish().map(|()| Packet::PingResp)?,
            PacketType::Disconnect => Packet::Disconnect(Disconnect::decode(version, body)?),
            PacketType::Auth => Packet::Auth(Auth::decode(version, body)?),
        })
    }

    /// Appends the packet to `out`. Appends nothing on error.
    ///
    /// `version` is that of the connection; a CONNECT is written in its own. What an older version
    /// cannot express is left out. The caller must ensure that strings have no U+0000, that topics
    /// are valid, and that properties belong in the packet.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Packet::Connect(packet) => packet.encode(out),
            Packet::ConnAck(packet) => packet.encode(version, out),
            Packet::Publish(packet) => packet.encode(version, out),
            Packet::PubAck(packet)
            | Packet::PubRec(packet)
            | Packet::PubRel(packet)
            | Packet::PubComp(packet) => packet.encode(self.packet_type(), version, out),
            Packet::Subscribe(packet) => packet.encode(version, out),
            Packet::SubAck(packet) => packet.encode(version, out),
            Packet::Unsubscribe(packet) => packet.encode(version, out),
            Packet::UnsubAck(packet) => packet.encode(version, out),
            Packet::PingReq | Packet::PingResp => put_packet(self.packet_type(), out, |_| Ok(())),
            Packet::Disconnect(packet) => packet.encode(version, out),
            Packet::Auth(packet) => packet.encode(version, out),
        }
    }

    /// The type of the packet.
    pub fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }
}

#[inline]
fn read_packet_id(reader: &mut Reader<'_>) -> Result<PacketId, DecodeError> {
    PacketId::new(reader.u16()?).ok_or(DecodeError::PacketIdZero)
}

/// Reads the properties of an MQTT 5 packet. Older versions have none.
#[inline]
fn read_properties<'a>(
    version: Version,
    reader: &mut Reader<'a>,
    allowed: PropertySet,
) -> Result<Properties<'a>, DecodeError> {
    if version.is_v5() { Properties::decode(reader, allowed) } else { Ok(Properties::EMPTY) }
}

/// Appends the properties of an MQTT 5 packet. Older versions have none.
#[inline]
fn put_properties(
    version: Version,
    properties: Properties<'_>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if version.is_v5() {
        let bytes = properties.as_bytes();
        if bytes.len() > crate::MAX_REMAINING_LENGTH {
            return Err(EncodeError::PacketTooLong);
        }
        put_varint(bytes.len() as u32, out);
        out.extend_from_slice(bytes);
    }
    Ok(())
}

/// Reads a reason code, and checks that `allowed` accepts it.
fn read_reason(
    reader: &mut Reader<'_>,
    allowed: fn(ReasonCode) -> bool,
) -> Result<ReasonCode, DecodeError> {
    let code = reader.u8()?;
    ReasonCode::from_u8(code).filter(|&reason| allowed(reason)).ok_or(DecodeError::ReasonCode(code))
}

/// Reads the codes of a SUBACK or UNSUBACK, up to the end of the packet.
fn read_codes<'a>(
    reader: &mut Reader<'a>,
    allowed: impl Fn(ReasonCode) -> bool,
) -> Result<&'a [u8], DecodeError> {
    let codes = reader.rest();
    if codes.is_empty() {
        return Err(DecodeError::EmptyPayload);
    }
    let is_allowed = |code| ReasonCode::from_u8(code).is_some_and(&allowed);
    match codes.iter().find(|&&code| !is_allowed(code)) {
        Some(&code) => Err(DecodeError::ReasonCode(code)),
        None => Ok(codes),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::MAX_PACKET_LEN;

    /// Decodes `bytes` as one whole packet.
    pub(crate) fn decode(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
        let header = FixedHeader::read(bytes, MAX_PACKET_LEN)?.expect("the header is complete");
        Packet::decode(version, header, &bytes[header.header_len..])
    }

    /// Checks that `packet` is encoded as `bytes`, and that `bytes` are decoded as `packet`.
    #[track_caller]
    pub(crate) fn check(version: Version, packet: &Packet<'_>, bytes: &[u8]) {
        let mut out = Vec::new();
        assert_eq!(packet.encode(version, &mut out), Ok(()));
        assert_eq!(out, bytes, "the bytes of {packet:?}");
        assert_eq!(decode(version, bytes).as_ref(), Ok(packet));
    }

    #[test]
    fn pings_have_no_body() {
        for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
            check(version, &Packet::PingReq, &[0xC0, 0]);
            check(version, &Packet::PingResp, &[0xD0, 0]);
            assert_eq!(decode(version, &[0xC0, 1, 0]), Err(DecodeError::TrailingBytes));
            assert_eq!(decode(version, &[0xD0, 1, 0]), Err(DecodeError::TrailingBytes));
        }
    }

    #[test]
    fn a_body_that_is_not_as_long_as_the_header_says_is_refused() {
        assert_eq!(decode(Version::V5, &[0xC0, 1]), Err(DecodeError::Truncated));
        assert_eq!(decode(Version::V5, &[0xC0, 0, 0]), Err(DecodeError::TrailingBytes));
        let header = FixedHeader { first: 0, header_len: 2, body_len: 0 };
        assert_eq!(Packet::decode(Version::V5, header, &[]), Err(DecodeError::UnknownPacketType));
    }
}
