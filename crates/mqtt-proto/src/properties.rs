//! The properties of MQTT 5 (section 2.2.2). They are kept in their encoded form and decoded on
//! demand.

mod buf;
mod property;
mod set;

pub use buf::PropertiesBuf;
pub use property::{Property, PropertyId};
pub use set::PropertySet;

use std::fmt;

use crate::wire::Reader;
use crate::{DecodeError, QoS};

/// Validated properties of one packet in their encoded form, borrowed from the packet, without
/// their length prefix.
#[derive(Clone, Copy)]
pub struct Properties<'a> {
    bytes: &'a [u8],
    /// Contains the identifiers of all properties in `bytes`, and perhaps others.
    present: PropertySet,
}

impl Default for Properties<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Properties<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Properties<'_> {}

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Properties<'static> = Properties { bytes: &[], present: PropertySet::NONE };

    /// Reads the length prefix and the properties behind it. Checks that all of them are in
    /// `allowed`, that their values are permitted, and that none occurs twice that may occur only
    /// once.
    #[inline]
    pub fn decode(input: &mut Reader<'a>, allowed: PropertySet) -> Result<Self, DecodeError> {
        let len = input.varint()?;
        let bytes = input.take(len as usize)?;
        let present = if bytes.is_empty() { PropertySet::NONE } else { validate(bytes, allowed)? };
        Ok(Properties { bytes, present })
    }

    /// Wraps bytes that this crate has validated or written before.
    ///
    /// With other bytes, some properties may seem to be missing; nothing worse happens.
    #[inline]
    pub fn from_validated(bytes: &'a [u8]) -> Self {
        Properties { bytes, present: PropertySet::ALL }
    }

    /// The encoded properties, without the length prefix.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there are no properties.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Iterates over all properties, in the order of the packet.
    pub fn iter(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        self.raw().map_while(RawProperty::decode)
    }

    /// Iterates over all properties in the order of the packet without decoding them, for copying
    /// some of them.
    pub fn raw(&self) -> impl Iterator<Item = RawProperty<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || RawProperty::read(&mut reader))
    }

    /// The encoded properties without those of one kind that occurs only once: the bytes before it, and those behind it.
    pub fn without(&self, id: PropertyId) -> (&'a [u8], &'a [u8]) {
        if self.present.contains(id) {
            let mut start = 0;
            for raw in self.raw() {
                let end = start + raw.bytes.len();
                if raw.id == id {
                    return (&self.bytes[..start], &self.bytes[end..]);
                }
                start = end;
            }
        }
        (self.bytes, &[])
    }

    /// The Subscription Identifiers: in a PUBLISH, those of the subscriptions that the message
    /// matched; in a SUBSCRIBE, that of the new subscriptions.
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.all(PropertyId::SubscriptionIdentifier).filter_map(|property| match property {
            Property::SubscriptionIdentifier(id) => Some(id),
            _ => None,
        })
    }

    /// The User Properties in their order, as name and value.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.all(PropertyId::UserProperty).filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }

    fn all(&self, id: PropertyId) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let bytes = if self.present.contains(id) { self.bytes } else { &[] };
        Self::from_validated(bytes)
            .raw()
            .filter(move |raw| raw.id == id)
            .map_while(RawProperty::decode)
    }

    #[inline]
    fn find(&self, id: PropertyId) -> Option<Property<'a>> {
        if !self.present.contains(id) {
            return None;
        }
        self.raw().find(|raw| raw.id == id)?.decode()
    }
}

/// Defines a getter for each property that can occur only once.
macro_rules! getters {
    ($($(#[$doc:meta])* $getter:ident: $variant:ident -> $value:ty;)*) => {
        impl<'a> Properties<'a> {
            $(
                $(#[$doc])*
                pub fn $getter(&self) -> Option<$value> {
                    match self.find(PropertyId::$variant) {
                        Some(Property::$variant(value)) => Some(value),
                        _ => None,
                    }
                }
            )*
        }
    };
}

getters! {
    /// Whether the payload is marked as UTF-8.
    payload_format_indicator: PayloadFormatIndicator -> bool;
    /// Lifetime of the message, in seconds.
    message_expiry_interval: MessageExpiryInterval -> u32;
    /// A description of the payload, whose meaning the application defines.
    content_type: ContentType -> &'a str;
    /// The topic to which a response is to be published.
    response_topic: ResponseTopic -> &'a str;
    /// Data by which a requester matches a response to its request.
    correlation_data: CorrelationData -> &'a [u8];
    /// Time that the session outlives the connection, in seconds; `u32::MAX` means that it does not
    /// expire.
    session_expiry_interval: SessionExpiryInterval -> u32;
    /// The client identifier that the server has assigned.
    assigned_client_identifier: AssignedClientIdentifier -> &'a str;
    /// The Keep Alive that the server requires instead of the client's, in seconds.
    server_keep_alive: ServerKeepAlive -> u16;
    /// The name of the authentication method.
    authentication_method: AuthenticationMethod -> &'a str;
    /// Data of the authentication method.
    authentication_data: AuthenticationData -> &'a [u8];
    /// Whether Reason Strings and User Properties are wanted in packets other than PUBLISH, CONNACK
    /// and DISCONNECT.
    request_problem_information: RequestProblemInformation -> bool;
    /// Time between the end of the connection and the publication of the will, in seconds.
    will_delay_interval: WillDelayInterval -> u32;
    /// Whether Response Information is wanted.
    request_response_information: RequestResponseInformation -> bool;
    /// The basis for creating response topics.
    response_information: ResponseInformation -> &'a str;
    /// Another server that the client can use.
    server_reference: ServerReference -> &'a str;
    /// The reason for a response, as a text for people.
    reason_string: ReasonString -> &'a str;
    /// Maximum number of unacknowledged QoS 1 and 2 messages; 1 or more.
    receive_maximum: ReceiveMaximum -> u16;
    /// The highest Topic Alias that is accepted.
    topic_alias_maximum: TopicAliasMaximum -> u16;
    /// The number that stands for the topic; 1 or more.
    topic_alias: TopicAlias -> u16;
    /// The highest QoS that the server supports: 0 or 1.
    maximum_qos: MaximumQoS -> QoS;
    /// Whether the server supports retained messages.
    retain_available: RetainAvailable -> bool;
    /// Length of the largest packet that is accepted, in bytes, including the header; 1 or more.
    maximum_packet_size: MaximumPacketSize -> u32;
    /// Whether the server supports wildcard subscriptions.
    wildcard_subscription_available: WildcardSubscriptionAvailable -> bool;
    /// Whether the server supports Subscription Identifiers.
    subscription_identifier_available: SubscriptionIdentifierAvailable -> bool;
    /// Whether the server supports shared subscriptions.
    shared_subscription_available: SharedSubscriptionAvailable -> bool;
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A validated property in its encoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawProperty<'a> {
    /// The identifier of the property.
    pub id: PropertyId,
    /// The encoded identifier and value.
    pub bytes: &'a [u8],
}

impl<'a> RawProperty<'a> {
    /// Decodes the property. Returns `None` only if the bytes were never validated.
    pub fn decode(self) -> Option<Property<'a>> {
        Property::read(self.id, &mut Reader::new(self.bytes.get(1..)?)).ok()
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let mut after = *reader;
        let id = PropertyId::from_u8(after.u8().ok()?)?;
        id.skip_value(&mut after).ok()?;
        let bytes = reader.take(reader.len() - after.len()).ok()?;
        Some(RawProperty { id, bytes })
    }
}

/// Checks encoded properties. Returns which there are.
fn validate(bytes: &[u8], allowed: PropertySet) -> Result<PropertySet, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut seen = PropertySet::NONE;
    while !reader.is_empty() {
        let id = reader.u8()?;
        let id = PropertyId::from_u8(id).ok_or(DecodeError::UnknownProperty(id))?;
        if !allowed.contains(id) {
            return Err(DecodeError::PropertyNotAllowed(id));
        }
        if seen.contains(id) && !allowed.may_repeat(id) {
            return Err(DecodeError::DuplicateProperty(id));
        }
        seen = seen.with(id);
        Property::check(id, &mut reader)?;
    }
    if seen.contains(PropertyId::AuthenticationData)
        && !seen.contains(PropertyId::AuthenticationMethod)
    {
        return Err(DecodeError::NoAuthenticationMethod);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], allowed: PropertySet) -> Result<Vec<Property<'_>>, DecodeError> {
        let mut prefixed = Vec::new();
        crate::wire::put_varint(bytes.len() as u32, &mut prefixed);
        prefixed.extend_from_slice(bytes);
        Properties::decode(&mut Reader::new(&prefixed), allowed)?;
        Ok(Properties::from_validated(bytes).iter().collect())
    }

    #[test]
    fn the_order_of_the_wire_is_kept() {
        let bytes = [0x23, 0, 7, 0x26, 0, 1, b'k', 0, 1, b'v', 0x0B, 5, 0x26, 0, 0, 0, 0];
        assert_eq!(
            decode(&bytes, PropertySet::PUBLISH),
            Ok(vec![
                Property::TopicAlias(7),
                Property::UserProperty("k", "v"),
                Property::SubscriptionIdentifier(5),
                Property::UserProperty("", ""),
            ])
        );
        let properties = Properties::from_validated(&bytes);
        assert_eq!(properties.topic_alias(), Some(7));
        assert_eq!(properties.content_type(), None);
        assert_eq!(properties.user_properties().collect::<Vec<_>>(), [("k", "v"), ("", "")]);
        assert_eq!(properties.subscription_identifiers().collect::<Vec<_>>(), [5]);
        let (before, behind) = properties.without(PropertyId::SubscriptionIdentifier);
        assert_eq!([before, behind].concat(), [&bytes[..10], &bytes[12..]].concat());
        assert_eq!(properties.without(PropertyId::ContentType), (&bytes[..], &[][..]));
        let raw: Vec<u8> = properties.raw().flat_map(|raw| raw.bytes.to_vec()).collect();
        assert_eq!(raw, bytes);
    }

    #[test]
    fn a_property_belongs_to_its_packets() {
        assert_eq!(
            decode(&[0x23, 0, 7], PropertySet::CONNECT),
            Err(DecodeError::PropertyNotAllowed(PropertyId::TopicAlias))
        );
        assert_eq!(decode(&[0x04, 0], PropertySet::CONNECT), Err(DecodeError::UnknownProperty(4)));
        assert_eq!(
            decode(&[0x81, 0], PropertySet::CONNECT),
            Err(DecodeError::UnknownProperty(0x81))
        );
    }

    #[test]
    fn only_some_may_repeat() {
        assert_eq!(
            decode(&[0x23, 0, 7, 0x23, 0, 7], PropertySet::PUBLISH),
            Err(DecodeError::DuplicateProperty(PropertyId::TopicAlias))
        );
        assert!(decode(&[0x0B, 1, 0x0B, 2], PropertySet::PUBLISH).is_ok());
        assert_eq!(
            decode(&[0x0B, 1, 0x0B, 2], PropertySet::SUBSCRIBE),
            Err(DecodeError::DuplicateProperty(PropertyId::SubscriptionIdentifier))
        );
    }

    #[test]
    fn values_out_of_range_are_protocol_errors() {
        let zero_packet_size = [0x27, 0, 0, 0, 0];
        for (bytes, allowed, id) in [
            (&[0x21, 0, 0][..], PropertySet::CONNECT, PropertyId::ReceiveMaximum),
            (&zero_packet_size, PropertySet::CONNECT, PropertyId::MaximumPacketSize),
            (&[0x17, 2], PropertySet::CONNECT, PropertyId::RequestProblemInformation),
            (&[0x19, 2], PropertySet::CONNECT, PropertyId::RequestResponseInformation),
            (&[0x01, 2], PropertySet::PUBLISH, PropertyId::PayloadFormatIndicator),
            (&[0x0B, 0], PropertySet::PUBLISH, PropertyId::SubscriptionIdentifier),
            (&[0x08, 0, 1, b'#'], PropertySet::PUBLISH, PropertyId::ResponseTopic),
            (&[0x08, 0, 0], PropertySet::PUBLISH, PropertyId::ResponseTopic),
            (&[0x24, 2], PropertySet::CONNACK, PropertyId::MaximumQoS),
            (&[0x25, 2], PropertySet::CONNACK, PropertyId::RetainAvailable),
        ] {
            let error = DecodeError::PropertyValue(id);
            assert_eq!(decode(bytes, allowed), Err(error));
            assert_eq!(error.reason_code(), crate::ReasonCode::ProtocolError);
        }
        assert_eq!(decode(&[0x23, 0, 0], PropertySet::PUBLISH), Err(DecodeError::TopicAlias));
    }

    #[test]
    fn authentication_data_needs_a_method() {
        assert_eq!(
            decode(&[0x16, 0, 0], PropertySet::CONNECT),
            Err(DecodeError::NoAuthenticationMethod)
        );
        assert!(decode(&[0x16, 0, 0, 0x15, 0, 0], PropertySet::CONNECT).is_ok());
    }

    #[test]
    fn bytes_never_validated_end_the_iteration() {
        let properties = Properties::from_validated(&[0x23, 0, 7, 0x03, 0xFF, 0xFF]);
        assert_eq!(properties.iter().collect::<Vec<_>>(), [Property::TopicAlias(7)]);
        assert_eq!(properties.content_type(), None);
    }
}
