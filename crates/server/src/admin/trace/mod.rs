//! `/v1/tenants/{tenant}/clients/{client}/trace`: the packets of one client as they pass, as server-sent events.

mod amqp;
mod fields;
mod hub;
mod mqtt;
mod recorder;

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use barid_engine::tapping::Protocol;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::info;
use utoipa::IntoParams;

use self::fields::Fields;
use self::hub::Following;
pub use self::hub::Traces;
use self::recorder::{Direction, Record, Recorder, What};
use super::access::Requester;
use super::answer::Refusal;
use super::progress::Progress;
use super::rfc3339::Rfc3339;
use super::sessions;
use super::streams::{Allowance, PAUSE, Place, Source, put, put_skipped};
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Whether payloads of MQTT messages are shown.
    #[serde(default)]
    payload: bool,
    /// Maximum number of packets each second.
    #[serde(default = "default_rate")]
    rate: u32,
}

fn default_rate() -> u32 {
    500
}

#[derive(Debug, Serialize)]
struct Packet {
    at: Rfc3339,
    connection: u64,
    direction: Direction,
    packet: &'static str,
    bytes: usize,
    fields: Fields,
}

/// Shows the packets of a client as they pass, as server-sent events.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/clients/{client}/trace", operation_id = "trace_client",
    params(Question),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub async fn stream(
    State(served): State<Served>,
    Extension(requester): Extension<Requester>,
    Extension(progress): Extension<Progress>,
    path: Result<Path<(String, String)>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path((tenant, client)), Query(Question { payload, rate })) = (path?, question?);
    let allowance = Allowance::new(rate)?;
    let tenant = tenants::named(&served, &tenant)?;
    let place = Place::take(&served)?;
    let recorder = Arc::new(Recorder::new(served.shared.engine.clock, allowance));
    let following = served.traces.begin(&tenant, &client, &recorder);
    info!(tenant = &*tenant.name, client, payload, by = %requester, "a trace begins");
    let news = Arc::clone(recorder.news());
    let traces = Arc::clone(&served.traces);
    let packets = Packets { recorder, payload, skipped: 0, traces, following };
    Ok(place.answer((requester, progress), "tracing", news, packets))
}

/// The packets of one trace.
struct Packets {
    recorder: Arc<Recorder>,
    payload: bool,
    /// Packets that were counted instead of sent, and of which the client has not been told.
    skipped: u64,
    traces: Arc<Traces>,
    following: Following,
}

impl Source for Packets {
    fn take(&mut self) -> (String, u64) {
        let (records, skipped) = self.recorder.take();
        let (mut text, mut told) = (String::new(), records.len() as u64);
        for record in &records {
            self.put(&mut text, record);
        }
        // Records are kept until there is no room, so what is missing comes after them.
        self.skipped += skipped;
        if self.skipped > 0 {
            told += put_skipped(&mut text, "packets", &mut self.skipped);
        }
        (text, told)
    }

    fn skip(&mut self, packets: u64) {
        self.skipped += packets;
    }

    async fn rest(&mut self, _: bool) {
        tokio::time::sleep(PAUSE).await;
    }

    fn end(&mut self) {
        self.traces.end(&self.following);
    }
}

/// The name and the version of a protocol.
pub fn protocol_name(protocol: Protocol) -> String {
    match protocol {
        Protocol::Mqtt(version) => format!("MQTT {}", sessions::protocol(version)),
        Protocol::Amqp => "AMQP 1.0".into(),
    }
}

impl Packets {
    fn put(&self, text: &mut String, Record { at, connection, protocol, what }: &Record) {
        let (at, connection) = (Rfc3339::from(*at), connection.0);
        match what {
            What::Traced { peer, begins } => {
                let protocol = protocol_name(*protocol);
                let event = if *begins { "connected" } else { "present" };
                let data = json!({ "at": at, "connection": connection, "protocol": protocol, "address": peer.to_string() });
                put(text, event, &data);
            }
            What::Packet { direction, bytes, head } => {
                let (packet, fields) = match protocol {
                    Protocol::Mqtt(version) => mqtt::describe(*version, head, *bytes, self.payload),
                    Protocol::Amqp => amqp::describe(head, *bytes),
                };
                let (direction, bytes) = (*direction, *bytes);
                put(text, "packet", &Packet { at, connection, direction, packet, bytes, fields });
            }
            What::Ended { reason } => {
                let data = json!({ "at": at, "connection": connection, "reason": reason });
                put(text, "disconnected", &data);
            }
        }
    }
}
