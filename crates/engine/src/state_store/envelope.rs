//! What a request says besides its command.

use mqtt_proto::{Properties, Property, PropertyId, RawProperty};
use statestore_proto::properties;

/// The properties of a request that matter.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Where the response goes.
    pub response_topic: &'a str,
    /// What the client knows the response by.
    pub correlation: &'a [u8],
    /// The client's clock, unread.
    pub timestamp: Option<&'a str>,
    /// The fencing token, unread.
    pub fencing_token: Option<&'a str>,
    /// The client wants the key to outlive the broker's process.
    pub persist: bool,
}

impl<'a> Envelope<'a> {
    /// Reads the properties of a PUBLISH. `None`: it cannot be answered, as it has no Response Topic or
    /// no Correlation Data.
    pub fn read(given: Properties<'a>) -> Option<Self> {
        let (mut response_topic, mut correlation) = (None, None);
        let (mut timestamp, mut fencing_token, mut persist) = (None, None, false);
        for property in given.raw().filter(matters).filter_map(RawProperty::decode) {
            match property {
                Property::ResponseTopic(topic) => response_topic = Some(topic),
                Property::CorrelationData(data) => correlation = Some(data),
                Property::UserProperty(properties::TIMESTAMP, text) => timestamp = Some(text),
                Property::UserProperty(properties::FENCING_TOKEN, text) => {
                    fencing_token = Some(text);
                }
                Property::UserProperty(properties::PERSIST, text) => persist = text == "true",
                _ => {}
            }
        }
        Some(Self {
            response_topic: response_topic?,
            correlation: correlation?,
            timestamp,
            fencing_token,
            persist,
        })
    }
}

/// Whether a property need be decoded: clients send many that need not.
fn matters(property: &RawProperty<'_>) -> bool {
    match property.id {
        PropertyId::ResponseTopic | PropertyId::CorrelationData => true,
        PropertyId::UserProperty => {
            // The identifier, the length of the name in two bytes, and the name.
            let name = property.bytes.get(3..).unwrap_or_default();
            [properties::TIMESTAMP, properties::FENCING_TOKEN, properties::PERSIST]
                .iter()
                .any(|wanted| name.starts_with(wanted.as_bytes()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_proto::PropertiesBuf;

    #[test]
    fn without_a_topic_or_correlation_data_there_is_no_answer() {
        let topic = Property::ResponseTopic("r");
        let data = Property::CorrelationData(b"1");
        let stamp = Property::UserProperty("__ts", "1:2:c");
        for (given, answered) in [
            (vec![topic, data, stamp], true),
            (vec![topic, stamp], false),
            (vec![data], false),
            (vec![], false),
        ] {
            let mut buf = PropertiesBuf::default();
            for property in &given {
                buf.push(*property).unwrap();
            }
            let envelope = Envelope::read(buf.as_properties());
            assert_eq!(envelope.is_some(), answered, "{given:?}");
            assert!(envelope.is_none_or(|envelope| envelope.timestamp == Some("1:2:c")));
        }
    }
}
