//! The contents of an MQTT message, as the admin API describes them.

use data_encoding::BASE64;
use mqtt_proto::Properties;
use serde::Serialize;

use super::readable::Readable;

#[derive(Debug, Serialize)]
pub struct Contents {
    #[serde(flatten)]
    payload: Payload,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data_base64: Option<String>,
    user_properties: Vec<(String, String)>,
}

/// A payload, as text if it is UTF-8.
#[derive(Debug, Serialize)]
enum Payload {
    #[serde(rename = "payload")]
    Text(String),
    #[serde(rename = "payload_base64")]
    Binary(String),
}

impl Contents {
    /// Describes a message with the beginning of its payload, of at most `most` bytes.
    pub fn of(payload: &[u8], properties: Properties<'_>, most: usize) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            payload: Readable::beginning(payload, most).0.into(),
            content_type: properties.content_type().map(Into::into),
            response_topic: properties.response_topic().map(Into::into),
            correlation_data_base64: properties.correlation_data().map(|data| BASE64.encode(data)),
            user_properties: properties.user_properties().map(owned).collect(),
        }
    }
}

impl From<Readable> for Payload {
    fn from(readable: Readable) -> Self {
        match readable {
            Readable::Text(text) => Self::Text(text),
            Readable::Base64(text) => Self::Binary(text),
        }
    }
}
