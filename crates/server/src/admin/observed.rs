//! `/v1/tenants/{tenant}/messages`: the messages of a topic filter as they pass, as server-sent events.
//!
//! A task takes the messages from an observer and writes events to a short channel, from which the connection sends
//! them. Messages beyond the rate, or beyond what the client reads, are counted instead of sent. So neither a flood
//! nor a slow client costs memory, and publishers notice neither.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use barid_engine::ids::ConnectionId;
use barid_engine::observing::Observer;
use barid_engine::owner::{Farewell, Owner};
use barid_engine::worker::Worker;
use hyper::body::Frame;
use mqtt_proto::{Publish, ReasonCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use super::access::Requester;
use super::answer::Refusal;
use super::contents::Contents;
use super::progress::Progress;
use super::{Served, tenants};
use crate::shared::Shared;

/// Maximum number of streams at a time.
pub const STREAMS_MAX: usize = 16;

/// Maximum number of messages of a stream each second, whatever the request asks for.
const RATE_MAX: u32 = 10_000;

/// Maximum length of a payload in an event, in bytes. A longer payload is cut.
const PAYLOAD_MAX: usize = 16 * 1024;

/// Maximum number of bytes of the events that are written together; messages beyond are counted instead.
const TOGETHER_MAX: usize = 256 * 1024;

/// Number of groups of events that wait for the client.
const GROUPS_MAX: usize = 4;

/// Pause after messages were taken, so that many are taken together.
const PAUSE: Duration = Duration::from_millis(5);

/// Minimum time for which an observer is muted when it may send no more messages now.
const RECOVERY: Duration = Duration::from_millis(20);

/// Time between two comments that keep the connection alive, and between two checks of the token.
const HEARTBEAT: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
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

pub async fn stream(
    State(served): State<Served>,
    Extension(requester): Extension<Requester>,
    Extension(progress): Extension<Progress>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Result<Response, Refusal> {
    let (Path(tenant), Query(Question { filter, rate })) = (path?, question?);
    if !(1..=RATE_MAX).contains(&rate) {
        return Err(Refusal::bad_request(format!("rate must be from 1 to {RATE_MAX}")));
    }
    let tenant = tenants::named(&served, &tenant)?;
    let permit = Arc::clone(&served.streams).try_acquire_owned().map_err(|_| {
        Refusal::unavailable(format!("{STREAMS_MAX} streams are open already: close one first"))
    })?;
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
    let (groups, received) = mpsc::channel(GROUPS_MAX);
    let allowance = Allowance { rate, left: f64::from(rate), since: Instant::now() };
    let stream = Stream { shared, requester, observer, signal, allowance, skipped: 0, groups };
    tokio::spawn(stream.run());
    let body = Events { groups: received, progress, _permit: permit };
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(body)).into_response())
}

/// Tells the task that there are messages.
#[derive(Debug, Default)]
struct Signal {
    news: Notify,
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

/// The number of messages that may be sent now.
struct Allowance {
    rate: u32,
    left: f64,
    since: Instant,
}

impl Allowance {
    /// Adds what has accrued: at most that of one second.
    fn accrue(&mut self, now: Instant) {
        let rate = f64::from(self.rate);
        let new = now.duration_since(self.since).as_secs_f64() * rate;
        (self.left, self.since) = ((self.left + new).min(rate), now);
    }

    /// The time until the next messages may be sent; `None`: now.
    fn pause(&self) -> Option<Duration> {
        let is_spent = self.left < 1.0;
        is_spent.then(|| {
            Duration::from_secs_f64((1.0 - self.left) / f64::from(self.rate)).max(RECOVERY)
        })
    }

    fn take(&mut self) -> bool {
        let is_left = self.left >= 1.0;
        self.left -= f64::from(u8::from(is_left));
        is_left
    }
}

/// The task of one stream.
struct Stream {
    shared: Arc<Shared>,
    requester: Requester,
    observer: Observer,
    signal: Arc<Signal>,
    allowance: Allowance,
    /// Messages that were counted instead of sent, and of which the client has not been told.
    skipped: u64,
    groups: mpsc::Sender<Bytes>,
}

impl Stream {
    /// Runs until the client goes or its token is no longer valid.
    async fn run(mut self) {
        // The client knows at once that it is subscribed.
        self.send(String::from(": observing\n\n"), 0);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.reset();
        loop {
            let is_signal = tokio::select! {
                () = self.groups.closed() => return,
                () = self.signal.news.notified() => true,
                _ = heartbeat.tick() => false,
            };
            if !is_signal && !self.requester.is_still_valid(&self.shared) {
                return;
            }
            let (text, told) = self.take();
            match text.is_empty() {
                false => self.send(text, told),
                true if !is_signal => self.send(String::from(":\n\n"), 0),
                true => {}
            }
            match self.allowance.pause() {
                Some(pause) => self.be_muted(pause).await,
                None if is_signal => tokio::time::sleep(PAUSE).await,
                None => {}
            }
        }
    }

    /// Counts messages for a time, instead of taking them. So a flood costs no more than what is sent of it.
    async fn be_muted(&mut self, pause: Duration) {
        self.observer.mute(true);
        tokio::time::sleep(pause).await;
        self.observer.mute(false);
        self.skipped += self.signal.missed.swap(0, Ordering::Relaxed);
    }

    /// Takes the messages that have come. Returns events, and the number of messages that they have or count.
    fn take(&mut self) -> (String, u64) {
        let Self { shared, observer, allowance, skipped, .. } = self;
        allowance.accrue(Instant::now());
        let (mut text, mut told) = (String::new(), 0);
        let tell_skipped = |text: &mut String, skipped: &mut u64| {
            put(text, "skipped", &json!({ "messages": *skipped }));
            std::mem::take(skipped)
        };
        observer.take(&shared.engine, |publish| {
            if text.len() < TOGETHER_MAX && allowance.take() {
                if *skipped > 0 {
                    told += tell_skipped(&mut text, skipped);
                }
                put(&mut text, "message", &Passed::of(publish));
                told += 1;
            } else {
                *skipped += 1;
            }
        });
        if *skipped > 0 && text.is_empty() && allowance.left >= 1.0 {
            told += tell_skipped(&mut text, skipped);
        }
        (text, told)
    }

    /// Sends events. If the client does not read, the messages that they have or count are skipped.
    fn send(&mut self, text: String, messages: u64) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.groups.try_send(text.into()) {
            self.skipped += messages;
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

/// Appends an event. JSON has no line breaks outside of strings, and escapes them inside, so an event cannot be
/// forged.
fn put(text: &mut String, event: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).expect("what is described can be written as JSON");
    text.push_str("event: ");
    text.push_str(event);
    text.push_str("\ndata: ");
    text.push_str(&data);
    text.push_str("\n\n");
}

/// The body of the response.
struct Events {
    groups: mpsc::Receiver<Bytes>,
    progress: Progress,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.groups.poll_recv(cx).map(|group| {
            group.map(|bytes| {
                self.progress.postpone();
                Ok(Frame::data(bytes))
            })
        })
    }
}
