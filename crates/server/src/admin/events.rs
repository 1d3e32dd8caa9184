//! `/v1/events`: what happens in the broker, as server-sent events.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use barid_engine::clock::Clock;
use barid_engine::events::{Client, Event, Listener};
use barid_engine::managed::ManagedKind;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use utoipa::IntoParams;

use super::Served;
use super::access::Requester;
use super::answer::Refusal;
use super::progress::Progress;
use super::rfc3339::Rfc3339;
use super::streams::{Allowance, PAUSE, Place, Source, TOGETHER_MAX, put, put_skipped};
use super::trace::protocol_name;
use crate::shared::Shared;

/// The kinds of events.
const KINDS: [&str; 6] = ["connected", "disconnected", "denied", "changed", "member", "shard"];

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only events of this tenant.
    tenant: Option<String>,
    /// Only these kinds, with commas between them.
    kinds: Option<String>,
    /// Maximum number of events each second.
    #[serde(default = "default_rate")]
    rate: u32,
}

fn default_rate() -> u32 {
    1_000
}

/// Tells what happens, as server-sent events.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "stream_events",
    params(Question),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub async fn stream(
    State(served): State<Served>,
    Extension(requester): Extension<Requester>,
    Extension(progress): Extension<Progress>,
    question: Result<Query<Question>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Question { tenant, kinds, rate }) = question?;
    let kinds = kinds.as_deref().map(wanted).transpose()?;
    let tenant = requester.confine(tenant)?;
    let allowance = Allowance::new(rate)?;
    let place = Place::take(&served)?;
    let shared = Arc::clone(&served.shared);
    let (clock, news) = (shared.engine.clock, Arc::<Notify>::default());
    let heard = Mutex::new(Heard { allowance, text: String::new(), told: 0, skipped: 0 });
    let ear = Arc::new(Ear { clock, tenant, kinds, news: Arc::clone(&news), heard });
    shared.engine.events.add(Arc::clone(&ear) as Arc<dyn Listener>);
    Ok(place.answer((requester, progress), "listening", news, Happenings { shared, ear }))
}

/// Reads which kinds are wanted.
fn wanted(text: &str) -> Result<Vec<&'static str>, Refusal> {
    let known = |word: &str| {
        KINDS.into_iter().find(|kind| *kind == word).ok_or_else(|| {
            let all = KINDS.join(", ");
            Refusal::bad_request(format!("there is no kind {word:?} of events; there are {all}"))
        })
    };
    text.split(',').map(known).collect()
}

/// Hears events, and writes them down in bounded memory.
#[derive(Debug)]
struct Ear {
    clock: Clock,
    tenant: Option<String>,
    kinds: Option<Vec<&'static str>>,
    news: Arc<Notify>,
    heard: Mutex<Heard>,
}

#[derive(Debug)]
struct Heard {
    allowance: Allowance,
    text: String,
    /// Events in the text.
    told: u64,
    /// Events that were only counted.
    skipped: u64,
}

impl Listener for Ear {
    fn hear(&self, event: &Event<'_>) {
        let (kind, tenant) = about(event);
        let is_wanted = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        if !is_wanted || self.tenant.is_some() && self.tenant.as_deref() != tenant {
            return;
        }
        let mut heard = self.heard.lock();
        heard.allowance.accrue(Instant::now());
        if heard.skipped == 0 && heard.text.len() < TOGETHER_MAX && heard.allowance.take() {
            put(&mut heard.text, kind, &described(event, self.clock.wall().into(), tenant));
            heard.told += 1;
        } else {
            heard.skipped += 1;
        }
        drop(heard);
        self.news.notify_one();
    }
}

/// Returns the kind of an event, and its tenant.
fn about<'a>(event: &Event<'a>) -> (&'static str, Option<&'a str>) {
    match *event {
        Event::Connected { tenant, .. } => ("connected", Some(tenant)),
        Event::Disconnected { tenant, .. } => ("disconnected", Some(tenant)),
        Event::Denied { tenant, .. } => ("denied", Some(tenant)),
        Event::Changed { kind: ManagedKind::Tenant, name } => ("changed", Some(name)),
        // An object of a tenant has its name, and a slash.
        Event::Changed { name, .. } => ("changed", name.split_once('/').map(|(tenant, _)| tenant)),
        Event::Member { .. } => ("member", None),
        Event::Shard { .. } => ("shard", None),
    }
}

fn described(event: &Event<'_>, at: Rfc3339, tenant: Option<&str>) -> Value {
    let mut value = match event {
        Event::Connected { client, .. } => of_client(client),
        Event::Disconnected { client, reason, .. } => {
            let mut value = of_client(client);
            value["reason"] = (*reason).into();
            value
        }
        Event::Denied { denial, .. } => json!({
            "action": denial.action.name(), "client": denial.client, "user": denial.user,
            "address": denial.peer.to_string(), "object": denial.object, "reason": denial.reason,
        }),
        Event::Changed { kind, name } => json!({ "kind": kind.name(), "name": name }),
        Event::Member { broker, state } => json!({ "broker": broker, "state": state }),
        Event::Shard { shard, is_open } => json!({ "shard": shard, "open": is_open }),
    };
    value["at"] = json!(at);
    if let Some(tenant) = tenant {
        value["tenant"] = tenant.into();
    }
    value
}

fn of_client(client: &Client<'_>) -> Value {
    json!({
        "client": client.id, "user": client.user, "protocol": protocol_name(client.protocol),
        "connection": client.connection.0, "address": client.peer.to_string(),
    })
}

/// The events of one stream.
struct Happenings {
    shared: Arc<Shared>,
    ear: Arc<Ear>,
}

impl Source for Happenings {
    fn take(&mut self) -> (String, u64) {
        let mut heard = self.ear.heard.lock();
        let (mut text, mut told) =
            (std::mem::take(&mut heard.text), std::mem::take(&mut heard.told));
        if heard.skipped > 0 {
            told += put_skipped(&mut text, "events", &mut heard.skipped);
        }
        (text, told)
    }

    fn skip(&mut self, events: u64) {
        self.ear.heard.lock().skipped += events;
    }

    async fn rest(&mut self, _: bool) {
        tokio::time::sleep(PAUSE).await;
    }

    fn end(&mut self) {
        let ear: Arc<dyn Listener> = Arc::clone(&self.ear) as _;
        self.shared.engine.events.remove(&ear);
    }
}
