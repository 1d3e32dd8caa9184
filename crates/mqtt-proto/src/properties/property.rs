use std::fmt;

use crate::wire::{MAX_VARINT, Reader, put_bytes, put_str, put_u16, put_u32, put_varint};
use crate::{DecodeError, EncodeError, QoS, topic};

/// The kind of a property. The number is the identifier on the wire (table 2-4).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of the standard, section 2.2.2.2")]
pub enum PropertyId {
    PayloadFormatIndicator = 0x01,
    MessageExpiryInterval = 0x02,
    ContentType = 0x03,
    ResponseTopic = 0x08,
    CorrelationData = 0x09,
    SubscriptionIdentifier = 0x0B,
    SessionExpiryInterval = 0x11,
    AssignedClientIdentifier = 0x12,
    ServerKeepAlive = 0x13,
    AuthenticationMethod = 0x15,
    AuthenticationData = 0x16,
    RequestProblemInformation = 0x17,
    WillDelayInterval = 0x18,
    RequestResponseInformation = 0x19,
    ResponseInformation = 0x1A,
    ServerReference = 0x1C,
    ReasonString = 0x1F,
    ReceiveMaximum = 0x21,
    TopicAliasMaximum = 0x22,
    TopicAlias = 0x23,
    MaximumQoS = 0x24,
    RetainAvailable = 0x25,
    UserProperty = 0x26,
    MaximumPacketSize = 0x27,
    WildcardSubscriptionAvailable = 0x28,
    SubscriptionIdentifierAvailable = 0x29,
    SharedSubscriptionAvailable = 0x2A,
}

impl PropertyId {
    /// Returns the property with the identifier `id`, if there is one.
    #[inline]
    pub fn from_u8(id: u8) -> Option<Self> {
        Some(match id {
            0x01 => PropertyId::PayloadFormatIndicator,
            0x02 => PropertyId::MessageExpiryInterval,
            0x03 => PropertyId::ContentType,
            0x08 => PropertyId::ResponseTopic,
            0x09 => PropertyId::CorrelationData,
            0x0B => PropertyId::SubscriptionIdentifier,
            0x11 => PropertyId::SessionExpiryInterval,
            0x12 => PropertyId::AssignedClientIdentifier,
            0x13 => PropertyId::ServerKeepAlive,
            0x15 => PropertyId::AuthenticationMethod,
            0x16 => PropertyId::AuthenticationData,
            0x17 => PropertyId::RequestProblemInformation,
            0x18 => PropertyId::WillDelayInterval,
            0x19 => PropertyId::RequestResponseInformation,
            0x1A => PropertyId::ResponseInformation,
            0x1C => PropertyId::ServerReference,
            0x1F => PropertyId::ReasonString,
            0x21 => PropertyId::ReceiveMaximum,
            0x22 => PropertyId::TopicAliasMaximum,
            0x23 => PropertyId::TopicAlias,
            0x24 => PropertyId::MaximumQoS,
            0x25 => PropertyId::RetainAvailable,
            0x26 => PropertyId::UserProperty,
            0x27 => PropertyId::MaximumPacketSize,
            0x28 => PropertyId::WildcardSubscriptionAvailable,
            0x29 => PropertyId::SubscriptionIdentifierAvailable,
            0x2A => PropertyId::SharedSubscriptionAvailable,
            _ => return None,
        })
    }

    /// The name of the property, as in the standard.
    pub fn name(self) -> &'static str {
        match self {
            PropertyId::PayloadFormatIndicator => "Payload Format Indicator",
            PropertyId::MessageExpiryInterval => "Message Expiry Interval",
            PropertyId::ContentType => "Content Type",
            PropertyId::ResponseTopic => "Response Topic",
            PropertyId::CorrelationData => "Correlation Data",
            PropertyId::SubscriptionIdentifier => "Subscription Identifier",
            PropertyId::SessionExpiryInterval => "Session Expiry Interval",
            PropertyId::AssignedClientIdentifier => "Assigned Client Identifier",
            PropertyId::ServerKeepAlive => "Server Keep Alive",
            PropertyId::AuthenticationMethod => "Authentication Method",
            PropertyId::AuthenticationData => "Authentication Data",
            PropertyId::RequestProblemInformation => "Request Problem Information",
            PropertyId::WillDelayInterval => "Will Delay Interval",
            PropertyId::RequestResponseInformation => "Request Response Information",
            PropertyId::ResponseInformation => "Response Information",
            PropertyId::ServerReference => "Server Reference",
            PropertyId::ReasonString => "Reason String",
            PropertyId::ReceiveMaximum => "Receive Maximum",
            PropertyId::TopicAliasMaximum => "Topic Alias Maximum",
            PropertyId::TopicAlias => "Topic Alias",
            PropertyId::MaximumQoS => "Maximum QoS",
            PropertyId::RetainAvailable => "Retain Available",
            PropertyId::UserProperty => "User Property",
            PropertyId::MaximumPacketSize => "Maximum Packet Size",
            PropertyId::WildcardSubscriptionAvailable => "Wildcard Subscription Available",
            PropertyId::SubscriptionIdentifierAvailable => "Subscription Identifiers Available",
            PropertyId::SharedSubscriptionAvailable => "Shared Subscription Available",
        }
    }

    /// Skips a value without decoding it.
    #[inline]
    pub(super) fn skip_value(self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        use PropertyId as Id;
        match self {
            Id::PayloadFormatIndicator
            | Id::RequestProblemInformation
            | Id::RequestResponseInformation
            | Id::MaximumQoS
            | Id::RetainAvailable
            | Id::WildcardSubscriptionAvailable
            | Id::SubscriptionIdentifierAvailable
            | Id::SharedSubscriptionAvailable => reader.take(1).map(drop),
            Id::ServerKeepAlive | Id::ReceiveMaximum | Id::TopicAliasMaximum | Id::TopicAlias => {
                reader.take(2).map(drop)
            }
            Id::MessageExpiryInterval
            | Id::SessionExpiryInterval
            | Id::WillDelayInterval
            | Id::MaximumPacketSize => reader.take(4).map(drop),
            Id::SubscriptionIdentifier => reader.varint().map(drop),
            Id::ContentType
            | Id::ResponseTopic
            | Id::CorrelationData
            | Id::AssignedClientIdentifier
            | Id::AuthenticationMethod
            | Id::AuthenticationData
            | Id::ResponseInformation
            | Id::ServerReference
            | Id::ReasonString => reader.bytes().map(drop),
            Id::UserProperty => {
                reader.bytes()?;
                reader.bytes().map(drop)
            }
        }
    }
}

impl fmt::Display for PropertyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A property and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the getters of `Properties` tell what the values mean")]
pub enum Property<'a> {
    PayloadFormatIndicator(bool),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    WillDelayInterval(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQoS(QoS),
    RetainAvailable(bool),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(bool),
    SubscriptionIdentifierAvailable(bool),
    SharedSubscriptionAvailable(bool),
}

impl<'a> Property<'a> {
    /// Reads the value of the property `id`, and checks its range.
    pub(super) fn decode(id: PropertyId, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let property = Self::read(id, reader)?;
        if property.in_range() {
            Ok(property)
        } else if id == PropertyId::TopicAlias {
            Err(DecodeError::TopicAlias)
        } else {
            Err(DecodeError::PropertyValue(id))
        }
    }

    /// Reads the value of the property `id`, whose range has been checked before.
    pub(super) fn read(id: PropertyId, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        use PropertyId as Id;
        Ok(match id {
            Id::PayloadFormatIndicator => Property::PayloadFormatIndicator(bool(id, reader)?),
            Id::MessageExpiryInterval => Property::MessageExpiryInterval(reader.u32()?),
            Id::ContentType => Property::ContentType(reader.str()?),
            Id::ResponseTopic => Property::ResponseTopic(reader.str()?),
            Id::CorrelationData => Property::CorrelationData(reader.bytes()?),
            Id::SubscriptionIdentifier => Property::SubscriptionIdentifier(reader.varint()?),
            Id::SessionExpiryInterval => Property::SessionExpiryInterval(reader.u32()?),
            Id::AssignedClientIdentifier => Property::AssignedClientIdentifier(reader.str()?),
            Id::ServerKeepAlive => Property::ServerKeepAlive(reader.u16()?),
            Id::AuthenticationMethod => Property::AuthenticationMethod(reader.str()?),
            Id::AuthenticationData => Property::AuthenticationData(reader.bytes()?),
            Id::RequestProblemInformation => Property::RequestProblemInformation(bool(id, reader)?),
            Id::WillDelayInterval => Property::WillDelayInterval(reader.u32()?),
            Id::RequestResponseInformation => {
                Property::RequestResponseInformation(bool(id, reader)?)
            }
            Id::ResponseInformation => Property::ResponseInformation(reader.str()?),
            Id::ServerReference => Property::ServerReference(reader.str()?),
            Id::ReasonString => Property::ReasonString(reader.str()?),
            Id::ReceiveMaximum => Property::ReceiveMaximum(reader.u16()?),
            Id::TopicAliasMaximum => Property::TopicAliasMaximum(reader.u16()?),
            Id::TopicAlias => Property::TopicAlias(reader.u16()?),
            Id::MaximumQoS => Property::MaximumQoS(maximum_qos(reader)?),
            Id::RetainAvailable => Property::RetainAvailable(bool(id, reader)?),
            Id::UserProperty => Property::UserProperty(reader.str()?, reader.str()?),
            Id::MaximumPacketSize => Property::MaximumPacketSize(reader.u32()?),
            Id::WildcardSubscriptionAvailable => {
                Property::WildcardSubscriptionAvailable(bool(id, reader)?)
            }
            Id::SubscriptionIdentifierAvailable => {
                Property::SubscriptionIdentifierAvailable(bool(id, reader)?)
            }
            Id::SharedSubscriptionAvailable => {
                Property::SharedSubscriptionAvailable(bool(id, reader)?)
            }
        })
    }

    /// Reads the value of the property `id`, and checks it as [`decode`](Self::decode) does.
    #[inline]
    pub(super) fn check(id: PropertyId, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        match id {
            PropertyId::UserProperty => {
                reader.skip_str()?;
                reader.skip_str()
            }
            PropertyId::ContentType | PropertyId::ReasonString => reader.skip_str(),
            _ => Self::decode(id, reader).map(drop),
        }
    }

    /// Appends identifier and value. Appends nothing on error.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.in_range() {
            return Err(EncodeError::PropertyValue(self.id()));
        }
        let start = out.len();
        out.push(self.id() as u8);
        let written = self.encode_value(out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn encode_value(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        use Property as P;
        match *self {
            P::PayloadFormatIndicator(value)
            | P::RequestProblemInformation(value)
            | P::RequestResponseInformation(value)
            | P::RetainAvailable(value)
            | P::WildcardSubscriptionAvailable(value)
            | P::SubscriptionIdentifierAvailable(value)
            | P::SharedSubscriptionAvailable(value) => out.push(u8::from(value)),
            P::MaximumQoS(value) => out.push(value as u8),
            P::ServerKeepAlive(value)
            | P::ReceiveMaximum(value)
            | P::TopicAliasMaximum(value)
            | P::TopicAlias(value) => put_u16(value, out),
            P::MessageExpiryInterval(value)
            | P::SessionExpiryInterval(value)
            | P::WillDelayInterval(value)
            | P::MaximumPacketSize(value) => put_u32(value, out),
            P::SubscriptionIdentifier(value) => put_varint(value, out),
            P::ContentType(value)
            | P::ResponseTopic(value)
            | P::AssignedClientIdentifier(value)
            | P::AuthenticationMethod(value)
            | P::ResponseInformation(value)
            | P::ServerReference(value)
            | P::ReasonString(value) => put_str(value, out)?,
            P::CorrelationData(value) | P::AuthenticationData(value) => put_bytes(value, out)?,
            P::UserProperty(name, value) => {
                put_str(name, out)?;
                put_str(value, out)?;
            }
        }
        Ok(())
    }

    /// The kind of the property.
    pub fn id(&self) -> PropertyId {
        match self {
            Property::PayloadFormatIndicator(..) => PropertyId::PayloadFormatIndicator,
            Property::MessageExpiryInterval(..) => PropertyId::MessageExpiryInterval,
            Property::ContentType(..) => PropertyId::ContentType,
            Property::ResponseTopic(..) => PropertyId::ResponseTopic,
            Property::CorrelationData(..) => PropertyId::CorrelationData,
            Property::SubscriptionIdentifier(..) => PropertyId::SubscriptionIdentifier,
            Property::SessionExpiryInterval(..) => PropertyId::SessionExpiryInterval,
            Property::AssignedClientIdentifier(..) => PropertyId::AssignedClientIdentifier,
            Property::ServerKeepAlive(..) => PropertyId::ServerKeepAlive,
            Property::AuthenticationMethod(..) => PropertyId::AuthenticationMethod,
            Property::AuthenticationData(..) => PropertyId::AuthenticationData,
            Property::RequestProblemInformation(..) => PropertyId::RequestProblemInformation,
            Property::WillDelayInterval(..) => PropertyId::WillDelayInterval,
            Property::RequestResponseInformation(..) => PropertyId::RequestResponseInformation,
            Property::ResponseInformation(..) => PropertyId::ResponseInformation,
            Property::ServerReference(..) => PropertyId::ServerReference,
            Property::ReasonString(..) => PropertyId::ReasonString,
            Property::ReceiveMaximum(..) => PropertyId::ReceiveMaximum,
            Property::TopicAliasMaximum(..) => PropertyId::TopicAliasMaximum,
            Property::TopicAlias(..) => PropertyId::TopicAlias,
            Property::MaximumQoS(..) => PropertyId::MaximumQoS,
            Property::RetainAvailable(..) => PropertyId::RetainAvailable,
            Property::UserProperty(..) => PropertyId::UserProperty,
            Property::MaximumPacketSize(..) => PropertyId::MaximumPacketSize,
            Property::WildcardSubscriptionAvailable(..) => {
                PropertyId::WildcardSubscriptionAvailable
            }
            Property::SubscriptionIdentifierAvailable(..) => {
                PropertyId::SubscriptionIdentifierAvailable
            }
            Property::SharedSubscriptionAvailable(..) => PropertyId::SharedSubscriptionAvailable,
        }
    }

    fn in_range(&self) -> bool {
        match *self {
            Property::ReceiveMaximum(n) | Property::TopicAlias(n) => n != 0,
            Property::MaximumPacketSize(n) => n != 0,
            Property::SubscriptionIdentifier(n) => (1..=MAX_VARINT).contains(&n),
            Property::MaximumQoS(qos) => qos != QoS::ExactlyOnce,
            Property::ResponseTopic(name) => topic::validate_name(name).is_ok(),
            _ => true,
        }
    }
}

fn bool(id: PropertyId, reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::PropertyValue(id)),
    }
}

fn maximum_qos(reader: &mut Reader<'_>) -> Result<QoS, DecodeError> {
    QoS::from_bits(reader.u8()?).ok_or(DecodeError::PropertyValue(PropertyId::MaximumQoS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_reads_as_much_as_decoding() {
        let bytes = [0, 1, b'a', 0, 1, b'b', 9, 9];
        let ids: Vec<_> = (0..=u8::MAX).filter_map(PropertyId::from_u8).collect();
        assert_eq!(ids.len(), 27);
        for id in ids {
            assert_eq!(PropertyId::from_u8(id as u8), Some(id));
            // A value of zeros would be out of range for some properties, so these values begin
            // with other bytes.
            let bytes = match id {
                PropertyId::SubscriptionIdentifier => &[0x85, 0x01, 0, 0][..],
                PropertyId::ReceiveMaximum | PropertyId::TopicAlias => &[1, 0, 0],
                _ => &bytes,
            };
            let (mut skipped, mut decoded) = (Reader::new(bytes), Reader::new(bytes));
            assert_eq!(id.skip_value(&mut skipped), Ok(()));
            let property = Property::decode(id, &mut decoded).unwrap();
            assert_eq!(property.id(), id);
            assert_eq!(skipped.len(), decoded.len(), "{id}");
            let mut out = Vec::new();
            property.encode(&mut out).unwrap();
            assert_eq!(out[0], id as u8);
            assert_eq!(out[1..], bytes[..bytes.len() - decoded.len()]);
        }
    }
}
