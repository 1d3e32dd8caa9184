//! The properties of a request to the state store.

use mqtt_proto::{Properties, Property, PropertyId, RawProperty};
use statestore_proto::properties;

/// The properties of a request that the state store uses.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The topic that the response is published to.
    pub response_topic: &'a str,
    /// The Correlation Data, by which the client recognises the response.
    pub correlation: &'a [u8],
    /// The reading of the client's clock (`__ts`), not yet parsed.
    pub timestamp: Option<&'a str>,
    /// The fencing token (`__ft`), not yet parsed.
    pub fencing_token: Option<&'a str>,
    /// Whether the client wants the key to survive a restart of the broker.
    pub persist: bool,
}

impl<'a> Envelope<'a> {
    /// Reads the properties of a PUBLISH. Returns `None` if the request cannot be answered, because it has no
    /// Response Topic or no Correlation Data.
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

/// Whether a property must be decoded. Clients send many properties that the state store does not use.
fn matters(property: &RawProperty<'_>) -> bool {
    match property.id {
        PropertyId::ResponseTopic | PropertyId::CorrelationData => true,
        PropertyId::UserProperty => {
            // A User Property begins with its identifier, the length of the name in two bytes, and the name.
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
