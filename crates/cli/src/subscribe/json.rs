//! A message as one line of JSON.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use mqtt_proto::{Properties, Publish};
use serde::Serialize;
use serde_json::Value;

use crate::timestamp::Timestamp;

/// A message as JSON. The fields appear in this order.
#[derive(Serialize)]
struct Line<'a> {
    tst: String,
    topic: &'a str,
    qos: u8,
    retain: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    mid: Option<u16>,
    payloadlen: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    /// Used instead of `payload` if the payload is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    properties: Option<Shown<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_format_indicator: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expiry_interval: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_topic: Option<&'a str>,
    /// Binary according to the standard, but almost always text.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_data_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_alias: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subscription_identifiers: Vec<u32>,
    /// One object for each: names may repeat, and their order matters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    user_properties: Vec<BTreeMap<&'a str, &'a str>>,
}

/// Formats `message`, which arrived at `time`. With `payload_is_json` a payload that is valid JSON
/// is embedded as it is, not as a string.
pub fn object(message: &Publish<'_>, time: Timestamp, payload_is_json: bool) -> String {
    let text = std::str::from_utf8(message.payload).ok();
    let parsed = text.filter(|_| payload_is_json).and_then(|text| serde_json::from_str(text).ok());
    let line = Line {
        tst: time.iso_8601(),
        topic: message.topic,
        qos: message.qos as u8,
        retain: message.retain.into(),
        mid: message.packet_id.map(|id| id.get()),
        payloadlen: message.payload.len(),
        payload: parsed.or_else(|| text.map(Value::from)),
        payload_base64: text.is_none().then(|| BASE64.encode(message.payload)),
        properties: shown(message.properties),
    };
    serde_json::to_string(&line).expect("strings, numbers and lists of them are always JSON")
}

fn shown(properties: Properties<'_>) -> Option<Shown<'_>> {
    if properties.is_empty() {
        return None;
    }
    let correlation = properties.correlation_data();
    let correlation_text = correlation.and_then(|data| std::str::from_utf8(data).ok());
    Some(Shown {
        payload_format_indicator: properties.payload_format_indicator().map(u8::from),
        message_expiry_interval: properties.message_expiry_interval(),
        content_type: properties.content_type(),
        response_topic: properties.response_topic(),
        correlation_data: correlation_text,
        correlation_data_base64: correlation
            .filter(|_| correlation_text.is_none())
            .map(|data| BASE64.encode(data)),
        topic_alias: properties.topic_alias(),
        subscription_identifiers: properties.subscription_identifiers().collect(),
        user_properties: properties.user_properties().map(|pair| BTreeMap::from([pair])).collect(),
    })
}
