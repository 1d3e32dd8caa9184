//! `/v1/tenants/{tenant}/publish`: publishes a message.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use barid_core::message::{Message, Publication};
use barid_engine::names::is_reserved;
use mqtt_proto::{PropertiesBuf, Property, QoS, topic};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{Answer, Refusal, not_durable};
use super::{Served, body, facts, receivers, tenants};

/// The message that a request publishes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WantedMessage)]
struct Wanted {
    /// The topic name.
    topic: String,
    /// The payload as text. Without this and the next member it is empty.
    payload: Option<String>,
    /// The payload in Base64.
    payload_base64: Option<String>,
    /// 0, 1 (the default) or 2.
    #[serde(default = "at_least_once")]
    qos: u8,
    /// Whether the message is retained.
    #[serde(default)]
    retain: bool,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data_base64: Option<String>,
    /// The Message Expiry Interval.
    expiry_seconds: Option<u32>,
    #[serde(default)]
    user_properties: Vec<(String, String)>,
}

fn at_least_once() -> u8 {
    1
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Published {
    /// Number of sessions of this broker that get a copy each.
    sessions: usize,
    /// Number of shared subscriptions, of which one member gets a copy each.
    shared: usize,
    /// The other brokers of the cluster whose sessions have subscribed.
    brokers: Vec<String>,
}

/// Publishes a message.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/publish", operation_id = "publish",
    request_body = Wanted,
    responses((status = 200, body = Published))
)]
pub async fn post(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    bytes: Bytes,
) -> Answer<Published> {
    let Path(tenant) = path?;
    let wanted: Wanted = body::properties(&bytes)?;
    let tenant = tenants::named(&served, &tenant)?;
    if wanted.topic.len() > tenant.limits().max_packet_size
        || bytes.len() > tenant.limits().max_packet_size
    {
        return Err(Refusal::bad_request("the message is larger than max_packet_size"));
    }
    let engine = &served.shared.engine;
    let message = wanted.message(engine.clock.now())?;
    let route = tenant.index.route(&wanted.topic);
    let published = Published {
        sessions: route.recipients().len(),
        shared: route.groups().len(),
        brokers: receivers::brokers(&served, &tenant, &wanted.topic),
    };
    let (done, told) = facts::told();
    engine.publish(&tenant, Arc::new(message), done);
    match told.await {
        Ok(()) => Ok(Json(published)),
        Err(_) => Err(not_durable("the message may be lost at a restart")),
    }
}

impl Wanted {
    fn message(&self, now: barid_core::time::MonoTime) -> Result<Message, Refusal> {
        topic::validate_name(&self.topic).map_err(|error| {
            Refusal::bad_request(format!("{:?} is not a topic: {error}", self.topic))
        })?;
        if is_reserved(&self.topic) {
            return Err(Refusal::bad_request(format!(
                "only the broker publishes to {:?}",
                self.topic
            )));
        }
        let (text, base64) = (self.payload.as_deref(), self.payload_base64.as_deref());
        let payload = body::bytes("payload", text, base64)?;
        let qos = match self.qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            2 => QoS::ExactlyOnce,
            _ => return Err(Refusal::bad_request("qos must be 0, 1 or 2")),
        };
        let life = self.expiry_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        let properties = self.properties()?;
        Ok(Message::new(&Publication {
            topic: &self.topic,
            payload: &payload,
            properties: properties.as_properties().as_bytes(),
            qos,
            retain: self.retain,
            expires_at: life.map(|life| now.after(life)),
        }))
    }

    fn properties(&self) -> Result<PropertiesBuf, Refusal> {
        let mut properties = PropertiesBuf::default();
        let data = self.correlation_data_base64.as_ref();
        let data = data.map(|text| body::decoded("correlation_data_base64", text)).transpose()?;
        if let Some(topic) = &self.response_topic {
            topic::validate_name(topic).map_err(|error| {
                Refusal::bad_request(format!("response_topic is not a topic: {error}"))
            })?;
        }
        let all = [
            self.payload.as_ref().map(|_| Property::PayloadFormatIndicator(true)),
            self.content_type.as_deref().map(Property::ContentType),
            self.response_topic.as_deref().map(Property::ResponseTopic),
            data.as_deref().map(Property::CorrelationData),
        ];
        let own = self.user_properties.iter();
        let own = own.map(|(name, value)| Property::UserProperty(name, value));
        for property in all.into_iter().flatten().chain(own) {
            properties
                .push(property)
                .map_err(|error| Refusal::bad_request(format!("a property: {error}")))?;
        }
        Ok(properties)
    }
}
