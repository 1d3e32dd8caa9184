use super::{Properties, Property, RawProperty};
use crate::EncodeError;

/// Builder for the properties of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesBuf(Vec<u8>);

impl PropertiesBuf {
    /// Creates an empty builder. Nothing is allocated before the first property is added.
    pub const fn new() -> Self {
        PropertiesBuf(Vec::new())
    }

    /// Appends `property`. The caller must ensure that the packet may carry it, and that it does
    /// not occur too often.
    ///
    /// # Errors
    /// If a string or data is longer than 65,535 bytes, or a value is out of its range. Then
    /// nothing is appended.
    pub fn push(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        property.encode(&mut self.0)
    }

    /// Appends a property of another packet without changing it.
    pub fn push_raw(&mut self, property: RawProperty<'_>) {
        self.0.extend_from_slice(property.bytes);
    }

    /// The properties added so far.
    pub fn as_properties(&self) -> Properties<'_> {
        Properties::from_validated(&self.0)
    }

    /// Whether no properties have been added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all properties, and keeps the allocation.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PropertyId, QoS};

    #[test]
    fn what_was_pushed_is_there() {
        let mut buf = PropertiesBuf::new();
        buf.push(Property::ServerKeepAlive(60)).unwrap();
        buf.push(Property::MaximumQoS(QoS::AtLeastOnce)).unwrap();
        buf.push(Property::UserProperty("a", "b")).unwrap();
        assert_eq!(buf.as_properties().server_keep_alive(), Some(60));
        assert_eq!(buf.as_properties().maximum_qos(), Some(QoS::AtLeastOnce));
        let mut copy = PropertiesBuf::new();
        for raw in buf.as_properties().raw().filter(|raw| raw.id == PropertyId::UserProperty) {
            copy.push_raw(raw);
        }
        assert_eq!(
            copy.as_properties().iter().collect::<Vec<_>>(),
            [Property::UserProperty("a", "b")]
        );
    }

    #[test]
    fn what_is_refused_leaves_no_bytes() {
        let long = "a".repeat(65_536);
        let mut buf = PropertiesBuf::new();
        for (property, error) in [
            (Property::UserProperty("a", &long), EncodeError::FieldTooLong),
            (Property::ContentType(&long), EncodeError::FieldTooLong),
            (Property::TopicAlias(0), EncodeError::PropertyValue(PropertyId::TopicAlias)),
            (Property::ReceiveMaximum(0), EncodeError::PropertyValue(PropertyId::ReceiveMaximum)),
            (
                Property::SubscriptionIdentifier(crate::wire::MAX_VARINT + 1),
                EncodeError::PropertyValue(PropertyId::SubscriptionIdentifier),
            ),
            (
                Property::MaximumQoS(QoS::ExactlyOnce),
                EncodeError::PropertyValue(PropertyId::MaximumQoS),
            ),
        ] {
            assert_eq!(buf.push(property), Err(error));
            assert!(buf.is_empty());
        }
    }
}
