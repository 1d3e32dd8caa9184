use std::fmt;

use crate::QoS;

/// Reason Code of MQTT 5: why something was done or refused (section 2.4).
///
/// One number may have several names: see [`ReasonCode::NORMAL_DISCONNECTION`] and
/// [`ReasonCode::GRANTED_QOS_0`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// Success; in a DISCONNECT, a normal disconnection; in a SUBACK, QoS 0 granted.
    Success = 0x00,
    /// The maximum QoS of the subscription is 1.
    GrantedQoS1 = 0x01,
    /// The maximum QoS of the subscription is 2.
    GrantedQoS2 = 0x02,
    /// The client disconnects and wants its will to be published.
    DisconnectWithWill = 0x04,
    /// The message is accepted, but there are no subscribers.
    NoMatchingSubscribers = 0x10,
    /// There was no subscription to end.
    NoSubscriptionExisted = 0x11,
    /// The authentication needs another step.
    ContinueAuthentication = 0x18,
    /// The client starts a re-authentication.
    ReAuthenticate = 0x19,
    /// Refused; the sender does not give a reason.
    UnspecifiedError = 0x80,
    /// The bytes are not a valid packet.
    MalformedPacket = 0x81,
    /// The packet is well-formed, but is not allowed here or now.
    ProtocolError = 0x82,
    /// The packet is valid, but this implementation does not accept it.
    ImplementationSpecificError = 0x83,
    /// The server does not support the protocol version of the client.
    UnsupportedProtocolVersion = 0x84,
    /// The server does not allow this client identifier.
    ClientIdentifierNotValid = 0x85,
    /// The credentials are wrong.
    BadUserNameOrPassword = 0x86,
    /// The client is not authorised for this action.
    NotAuthorized = 0x87,
    /// The server is not available.
    ServerUnavailable = 0x88,
    /// The server is busy; the client may try again later.
    ServerBusy = 0x89,
    /// The client is barred by an administrator.
    Banned = 0x8A,
    /// The server is shutting down.
    ServerShuttingDown = 0x8B,
    /// The authentication method is not supported, or is not the one in use.
    BadAuthenticationMethod = 0x8C,
    /// No packet was received for one and a half times the Keep Alive.
    KeepAliveTimeout = 0x8D,
    /// Another connection uses the same Client Identifier.
    SessionTakenOver = 0x8E,
    /// The topic filter is not accepted.
    TopicFilterInvalid = 0x8F,
    /// The topic name is not accepted.
    TopicNameInvalid = 0x90,
    /// The Packet Identifier is in use: the two sides disagree about the session state.
    PacketIdentifierInUse = 0x91,
    /// The Packet Identifier does not belong to anything in flight.
    PacketIdentifierNotFound = 0x92,
    /// The number of unacknowledged messages exceeds the Receive Maximum.
    ReceiveMaximumExceeded = 0x93,
    /// The Topic Alias is zero, or above the Topic Alias Maximum.
    TopicAliasInvalid = 0x94,
    /// The packet exceeds the Maximum Packet Size.
    PacketTooLarge = 0x95,
    /// The client publishes too fast.
    MessageRateTooHigh = 0x96,
    /// A limit of the implementation or the administrator is reached.
    QuotaExceeded = 0x97,
    /// An administrator closed the connection.
    AdministrativeAction = 0x98,
    /// The payload does not match its Payload Format Indicator.
    PayloadFormatInvalid = 0x99,
    /// The server does not support retained messages.
    RetainNotSupported = 0x9A,
    /// The QoS is above the Maximum QoS of the server.
    QoSNotSupported = 0x9B,
    /// The client is to use another server for now.
    UseAnotherServer = 0x9C,
    /// The client is to use another server permanently.
    ServerMoved = 0x9D,
    /// The server does not support shared subscriptions for this client.
    SharedSubscriptionsNotSupported = 0x9E,
    /// Too many connections in too short a time.
    ConnectionRateExceeded = 0x9F,
    /// The connection has lasted for the maximum time that was authorised.
    MaximumConnectTime = 0xA0,
    /// The server does not support Subscription Identifiers.
    SubscriptionIdentifiersNotSupported = 0xA1,
    /// The server does not support wildcard subscriptions.
    WildcardSubscriptionsNotSupported = 0xA2,
}

impl ReasonCode {
    /// [`ReasonCode::Success`] in a DISCONNECT.
    pub const NORMAL_DISCONNECTION: ReasonCode = ReasonCode::Success;
    /// [`ReasonCode::Success`] in a SUBACK.
    pub const GRANTED_QOS_0: ReasonCode = ReasonCode::Success;

    /// Whether the code means a failure: 0x80 and above.
    #[inline]
    pub fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    /// Returns the reason code with the number `code`, if there is one.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => ReasonCode::Success,
            0x01 => ReasonCode::GrantedQoS1,
            0x02 => ReasonCode::GrantedQoS2,
            0x04 => ReasonCode::DisconnectWithWill,
            0x10 => ReasonCode::NoMatchingSubscribers,
            0x11 => ReasonCode::NoSubscriptionExisted,
            0x18 => ReasonCode::ContinueAuthentication,
            0x19 => ReasonCode::ReAuthenticate,
            0x80 => ReasonCode::UnspecifiedError,
            0x81 => ReasonCode::MalformedPacket,
            0x82 => ReasonCode::ProtocolError,
            0x83 => ReasonCode::ImplementationSpecificError,
            0x84 => ReasonCode::UnsupportedProtocolVersion,
            0x85 => ReasonCode::ClientIdentifierNotValid,
            0x86 => ReasonCode::BadUserNameOrPassword,
            0x87 => ReasonCode::NotAuthorized,
            0x88 => ReasonCode::ServerUnavailable,
            0x89 => ReasonCode::ServerBusy,
            0x8A => ReasonCode::Banned,
            0x8B => ReasonCode::ServerShuttingDown,
            0x8C => ReasonCode::BadAuthenticationMethod,
            0x8D => ReasonCode::KeepAliveTimeout,
            0x8E => ReasonCode::SessionTakenOver,
            0x8F => ReasonCode::TopicFilterInvalid,
            0x90 => ReasonCode::TopicNameInvalid,
            0x91 => ReasonCode::PacketIdentifierInUse,
            0x92 => ReasonCode::PacketIdentifierNotFound,
            0x93 => ReasonCode::ReceiveMaximumExceeded,
            0x94 => ReasonCode::TopicAliasInvalid,
            0x95 => ReasonCode::PacketTooLarge,
            0x96 => ReasonCode::MessageRateTooHigh,
            0x97 => ReasonCode::QuotaExceeded,
            0x98 => ReasonCode::AdministrativeAction,
            0x99 => ReasonCode::PayloadFormatInvalid,
            0x9A => ReasonCode::RetainNotSupported,
            0x9B => ReasonCode::QoSNotSupported,
            0x9C => ReasonCode::UseAnotherServer,
            0x9D => ReasonCode::ServerMoved,
            0x9E => ReasonCode::SharedSubscriptionsNotSupported,
            0x9F => ReasonCode::ConnectionRateExceeded,
            0xA0 => ReasonCode::MaximumConnectTime,
            0xA1 => ReasonCode::SubscriptionIdentifiersNotSupported,
            0xA2 => ReasonCode::WildcardSubscriptionsNotSupported,
            _ => return None,
        })
    }

    /// The name of the code for people to read, as in the standard.
    pub fn name(self) -> &'static str {
        match self {
            ReasonCode::Success => "Success",
            ReasonCode::GrantedQoS1 => "Granted QoS 1",
            ReasonCode::GrantedQoS2 => "Granted QoS 2",
            ReasonCode::DisconnectWithWill => "Disconnect with Will Message",
            ReasonCode::NoMatchingSubscribers => "No matching subscribers",
            ReasonCode::NoSubscriptionExisted => "No subscription existed",
            ReasonCode::ContinueAuthentication => "Continue authentication",
            ReasonCode::ReAuthenticate => "Re-authenticate",
            ReasonCode::UnspecifiedError => "Unspecified error",
            ReasonCode::MalformedPacket => "Malformed Packet",
            ReasonCode::ProtocolError => "Protocol Error",
            ReasonCode::ImplementationSpecificError => "Implementation specific error",
            ReasonCode::UnsupportedProtocolVersion => "Unsupported Protocol Version",
            ReasonCode::ClientIdentifierNotValid => "Client Identifier not valid",
            ReasonCode::BadUserNameOrPassword => "Bad User Name or Password",
            ReasonCode::NotAuthorized => "Not authorized",
            ReasonCode::ServerUnavailable => "Server unavailable",
            ReasonCode::ServerBusy => "Server busy",
            ReasonCode::Banned => "Banned",
            ReasonCode::ServerShuttingDown => "Server shutting down",
            ReasonCode::BadAuthenticationMethod => "Bad authentication method",
            ReasonCode::KeepAliveTimeout => "Keep Alive timeout",
            ReasonCode::SessionTakenOver => "Session taken over",
            ReasonCode::TopicFilterInvalid => "Topic Filter invalid",
            ReasonCode::TopicNameInvalid => "Topic Name invalid",
            ReasonCode::PacketIdentifierInUse => "Packet Identifier in use",
            ReasonCode::PacketIdentifierNotFound => "Packet Identifier not found",
            ReasonCode::ReceiveMaximumExceeded => "Receive Maximum exceeded",
            ReasonCode::TopicAliasInvalid => "Topic Alias invalid",
            ReasonCode::PacketTooLarge => "Packet too large",
            ReasonCode::MessageRateTooHigh => "Message rate too high",
            ReasonCode::QuotaExceeded => "Quota exceeded",
            ReasonCode::AdministrativeAction => "Administrative action",
            ReasonCode::PayloadFormatInvalid => "Payload format invalid",
            ReasonCode::RetainNotSupported => "Retain not supported",
            ReasonCode::QoSNotSupported => "QoS not supported",
            ReasonCode::UseAnotherServer => "Use another server",
            ReasonCode::ServerMoved => "Server moved",
            ReasonCode::SharedSubscriptionsNotSupported => "Shared Subscriptions not supported",
            ReasonCode::ConnectionRateExceeded => "Connection rate exceeded",
            ReasonCode::MaximumConnectTime => "Maximum connect time",
            ReasonCode::SubscriptionIdentifiersNotSupported => {
                "Subscription Identifiers not supported"
            }
            ReasonCode::WildcardSubscriptionsNotSupported => "Wildcard Subscriptions not supported",
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), *self as u8)
    }
}

impl From<QoS> for ReasonCode {
    /// Returns the SUBACK code that grants `qos`.
    fn from(qos: QoS) -> Self {
        match qos {
            QoS::AtMostOnce => ReasonCode::GRANTED_QOS_0,
            QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
            QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
        }
    }
}

/// Return code: the answer to a CONNECT in MQTT 3.1 and 3.1.1 (3.1.1 section 3.2.2.3).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectReturnCode {
    /// The connection is accepted.
    Accepted = 0,
    /// The server does not support the protocol level of the client.
    UnacceptableProtocolVersion = 1,
    /// The server does not allow this client identifier.
    IdentifierRejected = 2,
    /// The server is not available.
    ServerUnavailable = 3,
    /// The credentials are malformed or wrong.
    BadUserNameOrPassword = 4,
    /// The client is not authorised to connect.
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// Returns the return code with the number `code`, if there is one.
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0 => ConnectReturnCode::Accepted,
            1 => ConnectReturnCode::UnacceptableProtocolVersion,
            2 => ConnectReturnCode::IdentifierRejected,
            3 => ConnectReturnCode::ServerUnavailable,
            4 => ConnectReturnCode::BadUserNameOrPassword,
            5 => ConnectReturnCode::NotAuthorized,
            _ => return None,
        })
    }
}

impl From<ReasonCode> for ConnectReturnCode {
    /// Returns the nearest code of MQTT 3. An error without a counterpart becomes
    /// [`ConnectReturnCode::ServerUnavailable`], after which the client may try again.
    fn from(reason: ReasonCode) -> Self {
        match reason {
            reason if !reason.is_error() => ConnectReturnCode::Accepted,
            ReasonCode::UnsupportedProtocolVersion => {
                ConnectReturnCode::UnacceptableProtocolVersion
            }
            ReasonCode::ClientIdentifierNotValid => ConnectReturnCode::IdentifierRejected,
            ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => {
                ConnectReturnCode::BadUserNameOrPassword
            }
            ReasonCode::NotAuthorized | ReasonCode::Banned => ConnectReturnCode::NotAuthorized,
            _ => ConnectReturnCode::ServerUnavailable,
        }
    }
}

impl From<ConnectReturnCode> for ReasonCode {
    fn from(code: ConnectReturnCode) -> Self {
        match code {
            ConnectReturnCode::Accepted => ReasonCode::Success,
            ConnectReturnCode::UnacceptableProtocolVersion => {
                ReasonCode::UnsupportedProtocolVersion
            }
            ConnectReturnCode::IdentifierRejected => ReasonCode::ClientIdentifierNotValid,
            ConnectReturnCode::ServerUnavailable => ReasonCode::ServerUnavailable,
            ConnectReturnCode::BadUserNameOrPassword => ReasonCode::BadUserNameOrPassword,
            ConnectReturnCode::NotAuthorized => ReasonCode::NotAuthorized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_leads_back_to_itself() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(ReasonCode::from_u8).collect();
        assert_eq!(known.len(), 43);
        for code in known {
            assert_eq!(ReasonCode::from_u8(code as u8), Some(code));
            assert_eq!(code.is_error(), code as u8 >= 0x80);
        }
    }

    #[test]
    fn return_codes_survive_the_way_through_reason_codes() {
        for code in (0..=5).filter_map(ConnectReturnCode::from_u8) {
            assert_eq!(ConnectReturnCode::from(ReasonCode::from(code)), code);
        }
        assert_eq!(ConnectReturnCode::from_u8(6), None);
        assert_eq!(
            ConnectReturnCode::from(ReasonCode::QuotaExceeded),
            ConnectReturnCode::ServerUnavailable
        );
    }

    #[test]
    fn it_reads_well() {
        assert_eq!(ReasonCode::SessionTakenOver.to_string(), "Session taken over (0x8E)");
    }
}
