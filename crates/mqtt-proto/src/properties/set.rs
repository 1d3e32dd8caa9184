use super::PropertyId;

/// Which properties a packet may carry (table 2-4). One bit per identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet(u64);

use PropertyId as Id;

const ACK: PropertySet = PropertySet::of(&[Id::ReasonString, Id::UserProperty]);

impl PropertySet {
    /// None at all.
    pub const NONE: PropertySet = PropertySet(0);
    /// What a CONNECT may say.
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
    /// What the will in a CONNECT may say.
    pub const WILL: PropertySet = PropertySet::of(&[
        Id::WillDelayInterval,
        Id::PayloadFormatIndicator,
        Id::MessageExpiryInterval,
        Id::ContentType,
        Id::ResponseTopic,
        Id::CorrelationData,
        Id::UserProperty,
    ]);
    /// What a CONNACK may say.
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
    /// What a PUBLISH may say.
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
    /// What a PUBACK, PUBREC, PUBREL or PUBCOMP may say.
    pub const ACK: PropertySet = ACK;
    /// What a SUBSCRIBE may say.
    pub const SUBSCRIBE: PropertySet =
        PropertySet::of(&[Id::SubscriptionIdentifier, Id::UserProperty]);
    /// What a SUBACK may say.
    pub const SUBACK: PropertySet = ACK;
    /// What an UNSUBSCRIBE may say.
    pub const UNSUBSCRIBE: PropertySet = PropertySet::of(&[Id::UserProperty]);
    /// What an UNSUBACK may say.
    pub const UNSUBACK: PropertySet = ACK;
    /// What a DISCONNECT may say.
    pub const DISCONNECT: PropertySet = PropertySet::of(&[
        Id::SessionExpiryInterval,
        Id::ReasonString,
        Id::UserProperty,
        Id::ServerReference,
    ]);
    /// What an AUTH may say.
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

    /// This set with `id` as well.
    #[inline]
    pub const fn with(self, id: PropertyId) -> Self {
        PropertySet(self.0 | 1 << id as u8)
    }

    /// Whether `id` is in the set.
    #[inline]
    pub const fn contains(self, id: PropertyId) -> bool {
        self.0 & 1 << id as u8 != 0
    }

    /// Whether a packet with these properties may carry `id` more than once: user properties
    /// always, the Subscription Identifier in a PUBLISH only.
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
