//! Conversion of AMQP messages to MQTT.

use std::borrow::Cow;

use barid_amqp::message::{Field, Sections, ValueRef, id_text};
use barid_core::entity::{Changes, Entry, Outcome, Overlay};
use barid_core::value::{Scope, Value};
use mqtt_proto::{PropertiesBuf, Property, topic};

use super::incoming::{FORMAT, OURS};
use super::template::{Placeholder, Template};
use crate::entities::value::encoded;

/// The parts of an MQTT message that come from an AMQP message.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub topic: String,
    pub properties: PropertiesBuf,
    pub payload: Cow<'a, [u8]>,
}

/// The reason why a message cannot be published: reason and description of its dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpublishable {
    pub reason: &'static str,
    pub description: String,
}

/// Converts a message of a queue to an MQTT message to the topic that `publish` describes.
///
/// # Errors
/// `Unpublishable` if the bytes are malformed, if the values of the message do not form a valid topic, or
/// if the body is not a single payload.
pub fn outgoing<'a>(
    entry: &'a Entry,
    bytes: &'a [u8],
    publish: &Template,
) -> Result<Outgoing<'a>, Unpublishable> {
    let sections = Sections::split(bytes).map_err(|malformed| Unpublishable {
        reason: "MalformedMessage",
        description: format!("The message cannot be read: {malformed}."),
    })?;
    let source = Source { sections, overlay: entry.overlay.as_deref() };
    let topic = source.topic(publish, entry.session.as_deref())?;
    let payload = source.sections.payload().ok_or_else(|| Unpublishable {
        reason: "UnsupportedBody",
        description: "The body is neither data nor text, and cannot be an MQTT payload.".into(),
    })?;
    Ok(Outgoing { topic, properties: source.properties(), payload })
}

/// A message as it was sent, and its changes since.
struct Source<'a> {
    sections: Sections<'a>,
    overlay: Option<&'a Overlay>,
}

impl<'a> Source<'a> {
    fn topic(&self, publish: &Template, session: Option<&str>) -> Result<String, Unpublishable> {
        let refuse = |description| Unpublishable { reason: "InvalidTopic", description };
        let value = |place: &Placeholder| match place {
            Placeholder::Session => session.map(Cow::from),
            Placeholder::Subject => self.system(Field::Subject, "Label").and_then(text_of),
            Placeholder::Property(name) => self.user(name).and_then(text_of),
            Placeholder::Level(_) | Placeholder::Client | Placeholder::Topic => None,
        };
        for place in publish.placeholders() {
            let what = match value(place) {
                None => "which the message does not have".into(),
                Some(value) if !has_whole_levels(&value) => {
                    format!("and {value:?} cannot be a level of a topic")
                }
                Some(_) => continue,
            };
            return Err(refuse(format!("The topic {:?} needs {place}, {what}.", publish.as_str())));
        }
        let topic = publish.render(value).expect("every place has a value");
        match topic::validate_name(&topic) {
            Err(error) => Err(refuse(format!("{topic:?} is not a topic: {error}."))),
            Ok(()) if topic.starts_with('$') => {
                Err(refuse(format!("{topic:?} is not a topic for clients: it begins with `$`.")))
            }
            Ok(()) => Ok(topic),
        }
    }

    fn properties(&self) -> PropertiesBuf {
        let mut properties = PropertiesBuf::new();
        // Properties that MQTT cannot express are left out.
        let mut push = |property: Property<'_>| {
            let _ = properties.push(property);
        };
        let format = self.user(FORMAT).and_then(ValueRef::integer);
        if let Some(format @ 0..=1) = format {
            push(Property::PayloadFormatIndicator(format == 1));
        }
        let system = |field, name| self.system(field, name).and_then(text_of);
        let kind = system(Field::ContentType, "ContentType");
        if let Some(kind) = kind.as_deref().filter(|kind| is_text(kind)) {
            push(Property::ContentType(kind));
        }
        let reply_to = system(Field::ReplyTo, "ReplyTo");
        let is_topic = |topic: &&str| topic::validate_name(topic).is_ok();
        if let Some(topic) = reply_to.as_deref().filter(is_topic) {
            push(Property::ResponseTopic(topic));
        }
        match self.system(Field::CorrelationId, "CorrelationId") {
            Some(ValueRef::Binary(data)) => push(Property::CorrelationData(data)),
            other => {
                if let Some(text) = other.and_then(id_text).as_deref() {
                    push(Property::CorrelationData(text.as_bytes()));
                }
            }
        }
        for (name, value) in self.application_properties() {
            let is_ours = OURS.iter().any(|own| own.eq_ignore_ascii_case(name));
            let value = text_of(value);
            if let Some(value) = value.as_deref().filter(|value| is_text(value))
                && !is_ours
                && is_text(name)
            {
                push(Property::UserProperty(name, value));
            }
        }
        properties
    }

    fn changed(&self, scope: Scope, name: &str) -> Option<&'a Value> {
        self.overlay?.get(scope, name)
    }

    fn system(&self, field: Field, name: &str) -> Option<ValueRef<'a>> {
        let value = match self.changed(Scope::System, name) {
            Some(changed) => encoded(changed),
            None => self.sections.properties().value(field),
        };
        (!value.is_null()).then_some(value)
    }

    fn user(&self, name: &str) -> Option<ValueRef<'a>> {
        self.application_properties().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    fn application_properties(&self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> {
        let sent = self.sections.application_properties().iter();
        let sent = sent.filter(|(name, _)| self.changed(Scope::User, name).is_none());
        let changed = self.overlay.into_iter().flat_map(Overlay::iter);
        let changed = changed.filter(|(scope, ..)| *scope == Scope::User);
        sent.chain(changed.map(|(_, name, value)| (name, encoded(value))))
            .filter(|(_, value)| !value.is_null())
    }
}

/// Returns a value as text; `None` if its type has no common text form. Times are in milliseconds since 1970.
fn text_of(value: ValueRef<'_>) -> Option<Cow<'_, str>> {
    match value {
        ValueRef::Bool(value) => Some(if value { "true" } else { "false" }.into()),
        ValueRef::Float(value) => Some(value.to_string().into()),
        ValueRef::Double(value) => Some(value.to_string().into()),
        ValueRef::Char(value) => Some(value.to_string().into()),
        ValueRef::Timestamp(at) => Some(at.to_string().into()),
        ValueRef::Ulong(value) => Some(value.to_string().into()),
        other => id_text(other),
    }
}

/// Whether a text can be a UTF-8 string of MQTT: at most 65,535 bytes, without U+0000 (MQTT 5 §1.5.4).
fn is_text(text: &str) -> bool {
    text.len() <= usize::from(u16::MAX) && !text.contains('\0')
}

/// Whether a text can be one or more levels of a topic.
fn has_whole_levels(text: &str) -> bool {
    !text.contains(['+', '#', '\0']) && text.split('/').all(|level| !level.is_empty())
}

impl From<Unpublishable> for Outcome {
    fn from(Unpublishable { reason, description }: Unpublishable) -> Self {
        let (reason, description) = (Some(reason.into()), Some(description.into()));
        Self::DeadLetter { reason, description, changes: Changes::new() }
    }
}
