use super::PropertyId;

/// A set of properties, one bit for each identifier. Used for the properties that a packet may
/// carry (table 2-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet(u64);

use PropertyId as Id;

const ACK: PropertySet = PropertySet::of(&[Id::ReasonString, Id::UserProperty]);

impl PropertySet {
    /// The empty set.
    pub const NONE: PropertySet = PropertySet(0);
    /// The set of all properties.
    pub(super) const ALL: PropertySet = PropertySet(u64::MAX);
    /// Properties of a CONNECT.
    pub const CONNECT: PropertySet = PropertySet::of(&[
        Id::SessionExpiryInterval,
        Id::ReceiveMaximum,
        Id::MaximumPacketSize,
        Id::TopicAliasMaximum,
        Id::RequestResponseInformation,
        Id::RequestProblemInformation,
        Id::UserProperty,
        Id::AuthenticationMethod,
        Id::AuthenticationData,
    ]);
    /// Properties of the will in a CONNECT.
    pub const WILL: PropertySet = PropertySet::of(&[
        Id::WillDelayInterval,
        Id::PayloadFormatIndicator,
        Id::MessageExpiryInterval,
        Id::ContentType,
        Id::ResponseTopic,
        Id::CorrelationData,
        Id::UserProperty,
    ]);
    /// Properties of a CONNACK.
    pub const CONNACK: PropertySet = PropertySet::of(&[
        Id::SessionExpiryInterval,
        Id::ReceiveMaximum,
        Id::MaximumQoS,
        Id::RetainAvailable,
        Id::MaximumPacketSize,
        Id::AssignedClientIdentifier,
        Id::TopicAliasMaximum,
        Id::ReasonString,
        Id::UserProperty,
        Id::WildcardSubscriptionAvailable,
        Id::SubscriptionIdentifierAvailable,
        Id::SharedSubscriptionAvailable,
        Id::ServerKeepAlive,
        Id::ResponseInformation,
        Id::ServerReference,
        Id::AuthenticationMethod,
        Id::AuthenticationData,
    ]);
    /// Properties of a PUBLISH.
    pub const PUBLISH: PropertySet = PropertySet::of(&[
        Id::PayloadFormatIndicator,
        Id::MessageExpiryInterval,
        Id::TopicAlias,
        Id::ResponseTopic,
        Id::CorrelationData,
        Id::UserProperty,
        Id::SubscriptionIdentifier,
        Id::ContentType,
    ]);
    /// Properties of a PUBACK, PUBREC, PUBREL or PUBCOMP.
    pub const ACK: PropertySet = ACK;
    /// Properties of a SUBSCRIBE.
    pub const SUBSCRIBE: PropertySet =
        PropertySet::of(&[Id::SubscriptionIdentifier, Id::UserProperty]);
    /// Properties of a SUBACK.
    pub const SUBACK: PropertySet = ACK;
    /// Properties of an UNSUBSCRIBE.
    pub const UNSUBSCRIBE: PropertySet = PropertySet::of(&[Id::UserProperty]);
    /// Properties of an UNSUBACK.
    pub const UNSUBACK: PropertySet = ACK;
    /// Properties of a DISCONNECT.
    pub const DISCONNECT: PropertySet = PropertySet::of(&[
        Id::SessionExpiryInterval,
        Id::ReasonString,
        Id::UserProperty,
        Id::ServerReference,
    ]);
    /// Properties of an AUTH.
    pub const AUTH: PropertySet = PropertySet::of(&[
        Id::AuthenticationMethod,
        Id::AuthenticationData,
        Id::ReasonString,
        Id::UserProperty,
    ]);

    const fn of(ids: &[PropertyId]) -> Self {
        let mut set = PropertySet::NONE;
        let mut i = 0;
        while i < ids.len() {
            set = set.with(ids[i]);
            i += 1;
        }
        set
    }

    /// Returns this set with `id` added.
    #[inline]
    pub const fn with(self, id: PropertyId) -> Self {
        PropertySet(self.0 | 1 << id as u8)
    }

    /// Returns whether `id` is in the set.
    #[inline]
    pub const fn contains(self, id: PropertyId) -> bool {
        self.0 & 1 << id as u8 != 0
    }

    /// Returns whether a packet with these properties may carry `id` more than once: User
    /// Properties always, the Subscription Identifier only in a PUBLISH.
    #[inline]
    pub(super) fn may_repeat(self, id: PropertyId) -> bool {
        match id {
            PropertyId::UserProperty => true,
            PropertyId::SubscriptionIdentifier => self == PropertySet::PUBLISH,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_properties_go_everywhere_and_aliases_do_not() {
        for set in [
            PropertySet::CONNECT,
            PropertySet::WILL,
            PropertySet::CONNACK,
            PropertySet::PUBLISH,
            PropertySet::ACK,
            PropertySet::SUBSCRIBE,
            PropertySet::UNSUBSCRIBE,
            PropertySet::DISCONNECT,
            PropertySet::AUTH,
        ] {
            assert!(set.contains(PropertyId::UserProperty));
            assert_eq!(set.contains(PropertyId::TopicAlias), set == PropertySet::PUBLISH);
        }
        assert!(!PropertySet::NONE.contains(PropertyId::UserProperty));
    }
}
