//! `/v1/tenants/{tenant}/messages`: the messages of a topic filter as they pass, as server-sent events.
//!
//! Messages beyond the rate, or beyond what the client reads, are counted instead of sent. Publishers notice neither.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use barid_engine::ids::ConnectionId;
use barid_engine::observing::Observer;
use barid_engine::owner::{Farewell, Owner};
use barid_engine::worker::Worker;
use mqtt_proto::{Publish, ReasonCode};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use utoipa::IntoParams;

use super::access::Requester;
use super::answer::Refusal;
use super::contents::Contents;
use super::progress::Progress;
use super::streams::{Allowance, PAUSE, Place, Source, TOGETHER_MAX, put, put_skipped};
use super::{Served, tenants};
use crate::shared::Shared;

/// Maximum length of a payload in an event, in bytes. A longer payload is cut.
const PAYLOAD_MAX: usize = 16 * 1024;

/// Minimum time for which an observer is muted when it may send no more messages now.
const RECOVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only messages of topics that this filter matches.
    filter: String,
    /// Maximum number of messages each second.
    #[serde(default = "default_rate")]
    rate: u32,
}

fn default_rate() -> u32 {
    100
}

#[derive(Debug, Serialize)]
struct Passed<'a> {
    topic: &'a str,
    retain: bool,
    payload_bytes: usize,
    payload_is_cut: bool,
    /// In seconds.
    expires_in: Option<u32>,
    #[serde(flatten)]
    contents: Contents,
}

/// Shows messages as they pass, as server-sent events.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/messages", operation_id = "observe_messages",
    params(Question),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub async fn stream(
    State(served): State<Served>,
    Extension(requester): Extension<Requester>,
    Extension(progress): Extension<Progress>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path(tenant), Query(Question { filter, rate })) = (path?, question?);
    let allowance = Allowance::new(rate)?;
    let tenant = tenants::named(&served, &tenant)?;
    let place = Place::take(&served)?;
    let shared = Arc::clone(&served.shared);
    let signal = Arc::new(Signal::default());
    let peer = requester.address().unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let worker = Worker { id: shared.admin_worker(), now: shared.engine.clock.now() };
    let observer = Observer::start(
        &shared.engine,
        &tenant,
        &filter,
        (shared.next_connection_id(), peer),
        Arc::clone(&signal) as Arc<dyn Owner>,
        worker,
    );
    let observer = observer
        .map_err(|error| Refusal::bad_request(format!("cannot observe {filter:?}: {error}")))?;
    let news = Arc::clone(&signal.news);
    let messages = Messages { shared, observer, signal, allowance, skipped: 0 };
    Ok(place.answer((requester, progress), "observing", news, messages))
}

/// Tells the stream that there are messages.
#[derive(Debug, Default)]
struct Signal {
    news: Arc<Notify>,
    /// Messages that have passed while the observer was muted.
    missed: AtomicU64,
}

impl Owner for Signal {
    fn drain(&self, _: ConnectionId) {
        self.news.notify_one();
    }

    fn missed(&self, count: usize) {
        self.missed.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn close(&self, _: ConnectionId, _: ReasonCode, _: Farewell) {}
}

/// The messages of one stream.
struct Messages {
    shared: Arc<Shared>,
    observer: Observer,
    signal: Arc<Signal>,
    allowance: Allowance,
    /// Messages that were counted instead of sent, and of which the client has not been told.
    skipped: u64,
}

impl Source for Messages {
    fn take(&mut self) -> (String, u64) {
        let Self { shared, observer, allowance, skipped, .. } = self;
        allowance.accrue(Instant::now());
        let (mut text, mut told) = (String::new(), 0);
        observer.take(&shared.engine, |publish| {
            if text.len() < TOGETHER_MAX && allowance.take() {
                if *skipped > 0 {
                    told += put_skipped(&mut text, "messages", skipped);
                }
                put(&mut text, "message", &Passed::of(publish));
                told += 1;
            } else {
                *skipped += 1;
            }
        });
        if *skipped > 0 && text.is_empty() && allowance.is_left() {
            told += put_skipped(&mut text, "messages", skipped);
        }
        (text, told)
    }

    fn skip(&mut self, messages: u64) {
        self.skipped += messages;
    }

    /// Counts messages while no more may be sent, instead of taking them. So a flood costs no more than what is sent of
    /// it.
    async fn rest(&mut self, is_signal: bool) {
        match self.allowance.pause() {
            Some(pause) => {
                self.observer.mute(true);
                tokio::time::sleep(pause.max(RECOVERY)).await;
                self.observer.mute(false);
                self.skipped += self.signal.missed.swap(0, Ordering::Relaxed);
            }
            None if is_signal => tokio::time::sleep(PAUSE).await,
            None => {}
        }
    }
}

impl<'a> Passed<'a> {
    fn of(publish: &Publish<'a>) -> Self {
        let (payload, properties) = (publish.payload, publish.properties);
        Self {
            topic: publish.topic,
            retain: publish.retain,
            payload_bytes: payload.len(),
            payload_is_cut: payload.len() > PAYLOAD_MAX,
            expires_in: properties.message_expiry_interval(),
            contents: Contents::of(payload, properties, PAYLOAD_MAX),
        }
    }
}
