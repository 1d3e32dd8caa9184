//! The contents of an MQTT message, as the admin API describes them.

use data_encoding::BASE64;
use mqtt_proto::Properties;
use serde::Serialize;
use utoipa::ToSchema;

use super::readable::Readable;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessageContents)]
pub struct Contents {
    /// The payload, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The payload in Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The Content Type; `None`: it has none, as with the following.
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data_base64: Option<String>,
    /// Names and values of the user properties, in order.
    user_properties: Vec<(String, String)>,
}

impl Contents {
    /// Describes a message with the beginning of its payload, of at most `most` bytes.
    pub fn of(payload: &[u8], properties: Properties<'_>, most: usize) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let (Readable { text, base64 }, _) = Readable::beginning(payload, most);
        Self {
            payload: text,
            payload_base64: base64,
            content_type: properties.content_type().map(Into::into),
            response_topic: properties.response_topic().map(Into::into),
            correlation_data_base64: properties.correlation_data().map(|data| BASE64.encode(data)),
            user_properties: properties.user_properties().map(owned).collect(),
        }
    }
}
