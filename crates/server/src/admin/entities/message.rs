//! A message as the admin API describes it.

use barid_amqp::message::{Field, Sections, ValueRef, id_text};
use barid_core::entity::{Entry, Overlay, State};
use barid_core::rules::same_name;
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use data_encoding::{BASE64, HEXLOWER};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use utoipa::ToSchema;

use crate::admin::readable::Readable;
use crate::admin::rfc3339::Rfc3339;

/// Maximum length of a body in a list, in bytes. A longer body is cut.
pub const BODY_MAX: usize = 16 * 1024;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueMessage)]
pub struct Described {
    /// The number of the message in its entity.
    sequence_number: u64,
    /// The number that it had where it was sent to first.
    enqueued_sequence_number: u64,
    /// `active`, `deferred` or `scheduled`.
    state: &'static str,
    /// The session id; `None`: it has none.
    session: Option<Box<str>>,
    message_id: Option<Box<str>>,
    /// How often it was delivered without being completed.
    delivery_count: u32,
    enqueued_at: Rfc3339,
    /// `None`: the message does not expire.
    expires_at: Option<Rfc3339>,
    /// `None`: it is not scheduled.
    scheduled_at: Option<Rfc3339>,
    /// Size of the whole message, in bytes.
    size: u32,
    #[serde(flatten)]
    #[schema(value_type = Inside)]
    inside: Option<Inside>,
}

/// The part of the description that comes from the bytes of the message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueMessageContents)]
struct Inside {
    subject: Option<String>,
    correlation_id: Option<String>,
    content_type: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    reply_to_session: Option<String>,
    /// The application properties, with values as in JSON.
    #[schema(value_type = Object, required = false)]
    application_properties: Map<String, Json>,
    /// The body, if it is UTF-8. Without this and the next member, it is neither data nor text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// Whether the body is longer than what is shown.
    #[schema(required = false)]
    body_is_cut: bool,
}

impl Described {
    /// Describes a message. `bytes` are its contents, if they could be read. A body of more than `body_max` bytes is cut.
    pub fn of(entry: &Entry, bytes: Option<&[u8]>, body_max: usize) -> Self {
        let (state, scheduled_at) = match entry.state {
            State::Active => ("active", None),
            State::Deferred => ("deferred", None),
            State::Scheduled { at } => ("scheduled", Some(at)),
        };
        let sections = bytes.and_then(|bytes| Sections::of_known(bytes).ok());
        Self {
            sequence_number: entry.number,
            enqueued_sequence_number: entry.enqueued_number,
            state,
            session: entry.session.as_deref().map(Into::into),
            message_id: entry.message_id.as_deref().map(Into::into),
            delivery_count: entry.delivery_count,
            enqueued_at: Rfc3339::from(entry.enqueued_at),
            expires_at: entry.expires_at.map(Rfc3339::from),
            scheduled_at: scheduled_at.map(Rfc3339::from),
            size: entry.body.size,
            inside: sections
                .map(|sections| Inside::of(&sections, entry.overlay.as_deref(), body_max)),
        }
    }
}

impl Inside {
    /// Describes the contents of a message, with the changes since it arrived.
    fn of(sections: &Sections<'_>, overlay: Option<&Overlay>, body_max: usize) -> Self {
        let property = |name: &str, field: Field| {
            let changes = overlay.map(Overlay::iter).into_iter().flatten();
            let mut changes =
                changes.filter(|(scope, its, _)| *scope == Scope::System && same_name(its, name));
            match changes.next() {
                Some((_, _, Value::String(text))) => Some((**text).into()),
                Some(_) => None,
                None => id_text(sections.properties().value(field)).map(Into::into),
            }
        };
        let payload = sections.payload();
        let body = payload.map(|payload| Readable::beginning(&payload, body_max));
        let (body, body_is_cut) = body.map_or((None, false), |(body, is_cut)| (Some(body), is_cut));
        let (body, body_base64) = body.map_or((None, None), |body| (body.text, body.base64));
        Self {
            subject: property("Label", Field::Subject),
            correlation_id: property("CorrelationId", Field::CorrelationId),
            content_type: property("ContentType", Field::ContentType),
            to: property("To", Field::To),
            reply_to: property("ReplyTo", Field::ReplyTo),
            reply_to_session: property("ReplyToSessionId", Field::ReplyToGroupId),
            application_properties: application_properties(sections, overlay),
            body,
            body_base64,
            body_is_cut,
        }
    }
}

fn application_properties(sections: &Sections<'_>, overlay: Option<&Overlay>) -> Map<String, Json> {
    let own = sections.application_properties();
    let mut properties: Map<_, _> =
        own.iter().map(|(name, value)| (name.to_owned(), json(value))).collect();
    for (scope, name, value) in overlay.map(Overlay::iter).into_iter().flatten() {
        if scope == Scope::User {
            match value {
                Value::Null => drop(properties.remove(name)),
                value => drop(properties.insert(name.into(), json_of(value))),
            }
        }
    }
    properties
}

/// Returns a value in JSON. A type that JSON does not have becomes text; a compound value becomes null.
fn json(value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null
        | ValueRef::List(_)
        | ValueRef::Map(_)
        | ValueRef::Array(_)
        | ValueRef::Other(_) => Json::Null,
        ValueRef::Bool(truth) => truth.into(),
        ValueRef::Float(number) => f64::from(number).into(),
        ValueRef::Double(number) => number.into(),
        ValueRef::Ulong(number) => number.into(),
        ValueRef::Char(letter) => letter.to_string().into(),
        ValueRef::Timestamp(at) => time(at),
        ValueRef::Binary(bytes) => BASE64.encode(bytes).into(),
        ValueRef::Uuid(_) | ValueRef::String(_) | ValueRef::Symbol(_) => {
            id_text(value).map_or(Json::Null, |text| text.into_owned().into())
        }
        integer => integer.integer().into(),
    }
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Long(number) => (*number).into(),
        Value::Double(number) => (*number).into(),
        Value::String(text) => (**text).into(),
        Value::Binary(bytes) => BASE64.encode(bytes).into(),
        Value::Uuid(id) => HEXLOWER.encode(id).into(),
        Value::Timestamp(at) => time(*at),
    }
}

/// Returns a timestamp as text. A time before 1970 is a number of milliseconds.
fn time(millis: i64) -> Json {
    match u64::try_from(millis) {
        Ok(millis) => Rfc3339::from(WallTime::from_millis(millis)).to_string().into(),
        Err(_) => millis.into(),
    }
}
