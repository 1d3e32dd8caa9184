use std::fmt;

use crate::{PropertyId, ReasonCode, TopicError};

/// An error in bytes from the peer. It is always the peer's fault: the connection is to be closed
/// with [`DecodeError::reason_code`] (section 4.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    // Malformed packets: bytes that are not MQTT.
    /// The Remaining Length has more than four bytes.
    RemainingLengthTooLong,
    /// A Variable Byte Integer has more than four bytes, or more than it needs.
    VariableByteInteger,
    /// The packet type is 0, or does not exist in the version.
    UnknownPacketType,
    /// The flags of the fixed header are not those of the packet type.
    ReservedHeaderFlags,
    /// A field reaches past the end of the packet.
    Truncated,
    /// Bytes are left after the last field.
    TrailingBytes,
    /// A string is not UTF-8.
    InvalidUtf8,
    /// A string contains U+0000.
    NulInString,
    /// A PUBLISH or a will has both QoS bits set.
    QoS3,
    /// A PUBLISH of QoS 0 is marked as a duplicate.
    DupWithQoS0,
    /// The reserved bit of the Connect Flags is set.
    ReservedConnectFlag,
    /// Will QoS or Will Retain are set without the Will Flag.
    WillFlagsWithoutWill,
    /// A password without a user name, in MQTT 3.
    PasswordWithoutUserName,
    /// A reserved bit of the Connect Acknowledge Flags is set.
    ReservedConnAckFlags,
    /// A reserved bit of the Subscription Options is set.
    ReservedSubscriptionOptions,
    /// The packet may not carry this reason code or return code.
    ReasonCode(u8),
    /// No property has this identifier.
    UnknownProperty(u8),
    /// The packet may not carry this property.
    PropertyNotAllowed(PropertyId),
    /// A topic filter is not well-formed (section 4.7).
    TopicFilter(TopicError),

    // Protocol errors: packets that must not be sent.
    /// The property must not occur twice.
    DuplicateProperty(PropertyId),
    /// The value of the property is out of its range.
    PropertyValue(PropertyId),
    /// A Packet Identifier is zero.
    PacketIdZero,
    /// A PUBLISH has neither a topic nor a Topic Alias.
    NoTopic,
    /// A SUBSCRIBE or UNSUBSCRIBE has no topic filter, or its acknowledgement has no code.
    EmptyPayload,
    /// A subscription asks for QoS 3.
    SubscriptionQoS3,
    /// Retain Handling is 3.
    RetainHandling3,
    /// A shared subscription has No Local set.
    NoLocalOnSharedSubscription,
    /// Authentication Data is present without an Authentication Method, or an AUTH has no
    /// Authentication Method.
    NoAuthenticationMethod,
    /// A CONNACK refuses and has Session Present set.
    SessionPresentOnRefusal,
    /// A PUBLISH uses a Topic Alias that was never given a topic.
    UnknownTopicAlias,

    // Errors with a reason code of their own.
    /// The protocol name and level are not those of a version that this crate supports.
    UnsupportedVersion,
    /// A topic name is not valid.
    TopicName(TopicError),
    /// A Topic Alias is zero or above the Topic Alias Maximum.
    TopicAlias,
    /// The packet exceeds the Maximum Packet Size.
    TooLarge,
    /// The payload is marked as UTF-8, but is not.
    PayloadFormat,
    /// The topics of all Topic Aliases together are too long.
    TopicAliasBytes,
}

impl DecodeError {
    /// The reason code for the DISCONNECT or CONNACK that answers this error.
    pub fn reason_code(&self) -> ReasonCode {
        use DecodeError as E;
        match self {
            E::RemainingLengthTooLong
            | E::VariableByteInteger
            | E::UnknownPacketType
            | E::ReservedHeaderFlags
            | E::Truncated
            | E::TrailingBytes
            | E::InvalidUtf8
            | E::NulInString
            | E::QoS3
            | E::DupWithQoS0
            | E::ReservedConnectFlag
            | E::WillFlagsWithoutWill
            | E::PasswordWithoutUserName
            | E::ReservedConnAckFlags
            | E::ReservedSubscriptionOptions
            | E::ReasonCode(_)
            | E::UnknownProperty(_)
            | E::PropertyNotAllowed(_)
            | E::TopicFilter(_) => ReasonCode::MalformedPacket,
            E::DuplicateProperty(_)
            | E::PropertyValue(_)
            | E::PacketIdZero
            | E::NoTopic
            | E::EmptyPayload
            | E::SubscriptionQoS3
            | E::RetainHandling3
            | E::NoLocalOnSharedSubscription
            | E::NoAuthenticationMethod
            | E::SessionPresentOnRefusal
            | E::UnknownTopicAlias => ReasonCode::ProtocolError,
            E::UnsupportedVersion => ReasonCode::UnsupportedProtocolVersion,
            E::TopicName(_) => ReasonCode::TopicNameInvalid,
            E::TopicAlias => ReasonCode::TopicAliasInvalid,
            E::TooLarge => ReasonCode::PacketTooLarge,
            E::PayloadFormat => ReasonCode::PayloadFormatInvalid,
            E::TopicAliasBytes => ReasonCode::QuotaExceeded,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use DecodeError as E;
        f.write_str(match self {
            E::RemainingLengthTooLong => "the Remaining Length has more than four bytes",
            E::VariableByteInteger => "a Variable Byte Integer is too long",
            E::UnknownPacketType => "unknown packet type",
            E::ReservedHeaderFlags => "reserved flags of the fixed header are wrong",
            E::Truncated => "a field reaches past the end of the packet",
            E::TrailingBytes => "bytes are left after the last field",
            E::InvalidUtf8 => "a string is not UTF-8",
            E::NulInString => "a string contains U+0000",
            E::QoS3 => "QoS 3 does not exist",
            E::DupWithQoS0 => "DUP is set on a PUBLISH of QoS 0",
            E::ReservedConnectFlag => "the reserved Connect Flag is set",
            E::WillFlagsWithoutWill => "Will QoS or Will Retain without a will",
            E::PasswordWithoutUserName => "a password without a user name",
            E::ReservedConnAckFlags => "reserved Connect Acknowledge Flags are set",
            E::ReservedSubscriptionOptions => "reserved Subscription Options are set",
            E::ReasonCode(code) => return write!(f, "code 0x{code:02X} is not allowed here"),
            E::UnknownProperty(id) => return write!(f, "unknown property 0x{id:02X}"),
            E::PropertyNotAllowed(id) => return write!(f, "{id} is not allowed in this packet"),
            E::TopicFilter(error) => return write!(f, "malformed topic filter: {error}"),
            E::DuplicateProperty(id) => return write!(f, "{id} occurs twice"),
            E::PropertyValue(id) => return write!(f, "{id} has a forbidden value"),
            E::PacketIdZero => "the Packet Identifier is zero",
            E::NoTopic => "neither a topic nor a Topic Alias",
            E::EmptyPayload => "the payload must not be empty",
            E::SubscriptionQoS3 => "a subscription asks for QoS 3",
            E::RetainHandling3 => "Retain Handling 3 does not exist",
            E::NoLocalOnSharedSubscription => "No Local on a shared subscription",
            E::NoAuthenticationMethod => "the Authentication Method is missing",
            E::SessionPresentOnRefusal => "Session Present in a CONNACK that refuses",
            E::UnknownTopicAlias => "the Topic Alias has no topic",
            E::UnsupportedVersion => "unsupported protocol version",
            E::TopicName(error) => return write!(f, "invalid topic name: {error}"),
            E::TopicAlias => "the Topic Alias is zero or above the maximum",
            E::TooLarge => "the packet is too large",
            E::PayloadFormat => "the payload is not UTF-8",
            E::TopicAliasBytes => "the topics of all Topic Aliases are too long",
        })
    }
}

impl std::error::Error for DecodeError {}

/// The reason why a packet cannot be written. It is always the caller's fault; nothing was appended
/// to the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// A string or a Binary Data field has more than 65,535 bytes.
    FieldTooLong,
    /// The packet has more than [`crate::MAX_REMAINING_LENGTH`] bytes after its fixed header.
    PacketTooLong,
    /// The version does not have this packet.
    NotInVersion,
    /// A PUBLISH of QoS 1 or 2 without a Packet Identifier.
    NoPacketId,
    /// A password without a user name, in MQTT 3.
    PasswordWithoutUserName,
    /// A SUBSCRIBE or UNSUBSCRIBE without a topic filter, or its acknowledgement without a code.
    EmptyPayload,
    /// The value of the property is out of its range.
    PropertyValue(PropertyId),
    /// A topic filter is not well-formed.
    TopicFilter,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::FieldTooLong => "a field has more than 65,535 bytes",
            EncodeError::PacketTooLong => "the packet has more than 268,435,455 bytes",
            EncodeError::NotInVersion => "this version of MQTT has no such packet",
            EncodeError::NoPacketId => "QoS 1 and 2 need a Packet Identifier",
            EncodeError::PasswordWithoutUserName => "a password without a user name",
            EncodeError::EmptyPayload => "the payload must not be empty",
            EncodeError::PropertyValue(id) => return write!(f, "{id} has a forbidden value"),
            EncodeError::TopicFilter => "a topic filter is malformed",
        })
    }
}

impl std::error::Error for EncodeError {}
