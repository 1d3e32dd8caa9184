//! Conversion of MQTT messages to AMQP.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use barid_amqp::message::{Builder, Field, ValueRef};
use barid_core::entity::Incoming;
use barid_core::message::Publication;
use barid_core::time::MonoTime;
use hashbrown::HashMap;
use mqtt_proto::{Properties, QoS};

use super::template::{Placeholder, Template};
use crate::random::Random;

/// Application properties that the broker sets. Publishers cannot set them.
pub const TOPIC: &str = "mqtt_topic";
pub const CLIENT: &str = "mqtt_client";
pub const QOS: &str = "mqtt_qos";
pub const RETAIN: &str = "mqtt_retain";
pub const FORMAT: &str = "mqtt_payload_format_indicator";

/// All application properties that the broker sets.
pub const OURS: [&str; 5] = [TOPIC, CLIENT, QOS, RETAIN, FORMAT];

/// Converts an MQTT message to the form that entities accept. `client`: the client identifier of the
/// publisher; empty if there is none.
pub fn incoming(
    publication: &Publication<'_>,
    client: &str,
    session: Option<&Template>,
    now: MonoTime,
    random: Random,
) -> Incoming {
    let properties = Properties::from_validated(publication.properties);
    let session =
        session.and_then(|template| session_of(template, publication, &properties, client));
    let time_to_live = publication.expires_at.map(|at| at.since(now));
    let message_id: Arc<str> = random.uuid().simple().to_string().into();
    let mut message = Builder::new();
    message.durable(publication.qos != QoS::AtMostOnce);
    if let Some(left) = time_to_live {
        message.ttl(u32::try_from(left.as_millis()).unwrap_or(u32::MAX));
    }
    message.property(Field::MessageId, ValueRef::String(&message_id));
    if let Some(session) = &session {
        message.property(Field::GroupId, ValueRef::String(session));
    }
    if let Some(topic) = properties.response_topic() {
        message.property(Field::ReplyTo, ValueRef::String(topic));
    }
    if let Some(data) = properties.correlation_data() {
        // UTF-8 without U+0000 becomes text, so that rules and clients can compare it with text.
        let text = std::str::from_utf8(data).ok().filter(|text| !text.contains('\0'));
        let data = text.map_or(ValueRef::Binary(data), ValueRef::String);
        message.property(Field::CorrelationId, data);
    }
    if let Some(kind) = properties.content_type() {
        // AMQP symbols are ASCII.
        let as_symbol = kind.is_ascii();
        let kind = if as_symbol { ValueRef::Symbol(kind) } else { ValueRef::String(kind) };
        message.property(Field::ContentType, kind);
    }
    for (name, value) in last_of_each(properties.user_properties()) {
        message.application_property(name, ValueRef::String(value));
    }
    message.application_property(TOPIC, ValueRef::String(publication.topic));
    if !client.is_empty() {
        message.application_property(CLIENT, ValueRef::String(client));
    }
    message.application_property(QOS, ValueRef::Int(publication.qos as i32));
    message.application_property(RETAIN, ValueRef::Bool(publication.retain));
    if let Some(is_utf8) = properties.payload_format_indicator() {
        message.application_property(FORMAT, ValueRef::Int(is_utf8.into()));
    }
    let mut bytes = Vec::new();
    message.data(publication.payload, &mut bytes);
    Incoming {
        session: session.map(Arc::from),
        message_id: Some(message_id),
        // The minimum is 1 ms: a message that is about to expire must not become one that never expires.
        time_to_live: time_to_live.map(|left| left.max(Duration::from_millis(1))),
        scheduled_at: None,
        bytes: bytes.into(),
        overlay: None,
    }
}

/// Returns the session id. Returns `None` if the message lacks a value that the template names, or if the
/// session id would be empty.
fn session_of(
    template: &Template,
    publication: &Publication<'_>,
    properties: &Properties<'_>,
    client: &str,
) -> Option<String> {
    let session = template.render(|place| match place {
        Placeholder::Level(level) => {
            publication.topic.split('/').nth(level.checked_sub(1)?).map(Cow::from)
        }
        Placeholder::Client => (!client.is_empty()).then(|| client.into()),
        Placeholder::Topic => Some(publication.topic.into()),
        Placeholder::Property(name) => {
            let mut all = properties.user_properties().filter(|(own, _)| own == name);
            let first = all.next()?;
            Some(all.last().unwrap_or(first).1.into())
        }
        Placeholder::Session | Placeholder::Subject => None,
    })?;
    (!session.is_empty()).then_some(session)
}

/// Returns the user properties without those that the broker sets. An MQTT message may have several user
/// properties of one name, but application properties are unique: the last value is used.
fn last_of_each<'a>(
    properties: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<(&'a str, &'a str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut places = HashMap::new();
    for (name, value) in properties {
        if OURS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            continue;
        }
        let place = *places.entry(name).or_insert(found.len());
        match found.get_mut(place) {
            Some(known) => known.1 = value,
            None => found.push((name, value)),
        }
    }
    found
}
