//! `POST …/messages`: a message is sent to a queue or topic.

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use barid_amqp::message::{Builder, Field, ValueRef};
use barid_engine::amqp::incoming;
use barid_engine::entities::{Batch, Node, SendError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::super::body;
use super::super::changing::change;
use crate::admin::Served;
use crate::admin::answer::Refusal;

/// The annotation with the time at which a message is to be enqueued.
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// A message to send. Its members have the names of those that [`messages`](super::messages) lists.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = MessageToSend)]
pub(super) struct Wanted {
    /// The body as text. Without this and the next member it is empty.
    body: Option<String>,
    /// The body in Base64.
    body_base64: Option<String>,
    /// The session id.
    session: Option<String>,
    message_id: Option<String>,
    subject: Option<String>,
    content_type: Option<String>,
    correlation_id: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    reply_to_session: Option<String>,
    /// Application properties: numbers, texts, booleans and `null`.
    #[schema(value_type = Object)]
    application_properties: Map<String, Value>,
    /// Time until the message expires, in seconds.
    ttl_seconds: Option<u32>,
    /// Time until receivers may get the message, in seconds.
    delay_seconds: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SentMessage)]
pub struct Sent {
    /// `None`: a topic has no messages of its own, a queue that forwards has none either, and a duplicate is not kept.
    sequence_number: Option<u64>,
}

/// Sends a message. The answer comes when it is durable.
pub async fn send(
    served: &Served,
    node: &Node,
    bytes: &Bytes,
) -> Result<(StatusCode, Json<Sent>), Refusal> {
    let wanted: Wanted = body::properties(bytes)?;
    let engine = &served.shared.engine;
    let now = engine.clock.wall();
    let mut written = Vec::new();
    wanted.write(now.as_millis(), &mut written)?;
    let most = node.max_message_size();
    if written.len() > most {
        let sentence = format!("the message has more than {most} bytes");
        return Err(Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, sentence));
    }
    let message = incoming(written.into(), engine.random)
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    let sent = change(served, |commits| {
        node.send(Batch::from_buf([message]), now, commits).map_err(Refusal::from)
    });
    let numbers = sent.await?;
    let sequence_number = numbers.first().copied().filter(|number| *number > 0);
    Ok((StatusCode::CREATED, Json(Sent { sequence_number })))
}

impl Wanted {
    /// Writes the message as AMQP. `now`: the wall time in milliseconds.
    fn write(&self, now: u64, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let body = body::bytes("body", self.body.as_deref(), self.body_base64.as_deref())?;
        let mut message = Builder::new();
        message.durable(true);
        if let Some(seconds) = self.ttl_seconds {
            message.ttl(seconds.saturating_mul(1_000));
        }
        if let Some(seconds) = self.delay_seconds {
            let at = now.saturating_add(u64::from(seconds) * 1_000);
            message.annotation(SCHEDULED, ValueRef::Timestamp(at.cast_signed()));
        }
        for (field, text) in [
            (Field::MessageId, &self.message_id),
            (Field::GroupId, &self.session),
            (Field::Subject, &self.subject),
            (Field::CorrelationId, &self.correlation_id),
            (Field::To, &self.to),
            (Field::ReplyTo, &self.reply_to),
            (Field::ReplyToGroupId, &self.reply_to_session),
        ] {
            if let Some(text) = text {
                message.property(field, ValueRef::String(text));
            }
        }
        if let Some(kind) = &self.content_type {
            // AMQP symbols are ASCII.
            let kind =
                if kind.is_ascii() { ValueRef::Symbol(kind) } else { ValueRef::String(kind) };
            message.property(Field::ContentType, kind);
        }
        for (name, value) in &self.application_properties {
            message.application_property(name, simple(name, value)?);
        }
        message.data(&body, out);
        Ok(())
    }
}

/// Returns the value of an application property, which may not be a list or map.
fn simple<'a>(name: &str, value: &'a Value) -> Result<ValueRef<'a>, Refusal> {
    Ok(match value {
        Value::Null => ValueRef::Null,
        Value::Bool(value) => ValueRef::Bool(*value),
        Value::String(text) => ValueRef::String(text),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => ValueRef::Long(number),
            (_, Some(number), _) => ValueRef::Ulong(number),
            (.., number) => ValueRef::Double(number.unwrap_or(f64::NAN)),
        },
        Value::Array(_) | Value::Object(_) => {
            let sentence = format!("the application property {name:?} is a list or an object");
            return Err(Refusal::bad_request(sentence));
        }
    })
}

impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        let sentence = error.to_string();
        match error {
            SendError::Gone => Self::not_found(sentence),
            SendError::NotStored => Self::unavailable(sentence),
            SendError::Malformed => Self::bad_request(sentence),
            SendError::Refused(_)
            | SendError::Disabled
            | SendError::TenantFull
            | SendError::TooMuchWork
            | SendError::TooManyCopies => Self::conflict(sentence),
        }
    }
}
