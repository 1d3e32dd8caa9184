//! Answers that go on: server-sent events, until the client goes or its token is no longer valid.
//!
//! A task takes items from a source and writes events to a short channel, from which the connection sends them. What the
//! client does not read in time is counted instead of sent. So neither a flood nor a slow client costs memory.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use super::Served;
use super::access::Requester;
use super::answer::Refusal;
use super::progress::Progress;
use crate::shared::Shared;

/// Maximum number of streams at a time.
pub const STREAMS_MAX: usize = 16;

/// Maximum number of bytes of the events that are written together.
pub const TOGETHER_MAX: usize = 256 * 1024;

/// Pause after items were taken, so that many are taken together.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of items of a stream each second, whatever the request asks for.
const RATE_MAX: u32 = 10_000;

/// Number of groups of events that wait for the client.
const GROUPS_MAX: usize = 4;

/// Time between two comments that keep the connection alive, and between two checks of the token.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Where the items of a stream come from.
pub trait Source: Send + 'static {
    /// Takes what has come. Returns events, and the number of items that they have or count.
    fn take(&mut self) -> (String, u64);

    /// Counts items that were not sent, because the client does not read.
    fn skip(&mut self, items: u64);

    /// Returns when the next items may be taken. `is_signal`: the source has signalled that there are some.
    fn rest(&mut self, is_signal: bool) -> impl Future<Output = ()> + Send;

    /// The stream has ended.
    fn end(&mut self) {}
}

/// A place for one more stream.
pub struct Place {
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
}

impl Place {
    /// Takes a place.
    ///
    /// # Errors
    /// All are taken.
    pub fn take(served: &Served) -> Result<Self, Refusal> {
        let permit = Arc::clone(&served.streams).try_acquire_owned().map_err(|_| {
            Refusal::unavailable(format!("{STREAMS_MAX} streams are open already: close one first"))
        })?;
        Ok(Self { shared: Arc::clone(&served.shared), permit })
    }

    /// Begins to answer with what comes from a source, which signals `news`. The client is `greeted` with a comment.
    pub fn answer(
        self,
        (requester, progress): (Requester, Progress),
        greeting: &str,
        news: Arc<Notify>,
        source: impl Source,
    ) -> Response {
        let Self { shared, permit } = self;
        let (groups, received) = mpsc::channel(GROUPS_MAX);
        // The client knows at once that what comes from now on is sent to it.
        let _ = groups.try_send(format!(": {greeting}\n\n").into());
        let mut stream = Stream { shared, requester, news, source, groups };
        tokio::spawn(async move {
            stream.run().await;
            stream.source.end();
        });
        let body = Events { groups: received, progress, _permit: permit };
        ([(CONTENT_TYPE, "text/event-stream")], Body::new(body)).into_response()
    }
}

/// The task of one stream.
struct Stream<S> {
    shared: Arc<Shared>,
    requester: Requester,
    news: Arc<Notify>,
    source: S,
    groups: mpsc::Sender<Bytes>,
}

impl<S: Source> Stream<S> {
    /// Runs until the client goes or its token is no longer valid.
    async fn run(&mut self) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.reset();
        loop {
            let is_signal = tokio::select! {
                () = self.groups.closed() => return,
                () = self.news.notified() => true,
                _ = heartbeat.tick() => false,
            };
            if !is_signal && !self.requester.is_still_valid(&self.shared) {
                return;
            }
            let (text, items) = self.source.take();
            match text.is_empty() {
                false => self.send(text, items),
                true if !is_signal => self.send(String::from(":\n\n"), 0),
                true => {}
            }
            self.source.rest(is_signal).await;
        }
    }

    /// Sends events. If the client does not read, their items are skipped.
    fn send(&mut self, text: String, items: u64) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.groups.try_send(text.into()) {
            self.source.skip(items);
        }
    }
}

/// The number of items that may be sent now.
#[derive(Debug)]
pub struct Allowance {
    rate: u32,
    left: f64,
    since: Instant,
}

impl Allowance {
    /// Allows `rate` items each second.
    ///
    /// # Errors
    /// The rate is out of range.
    pub fn new(rate: u32) -> Result<Self, Refusal> {
        if !(1..=RATE_MAX).contains(&rate) {
            return Err(Refusal::bad_request(format!("rate must be from 1 to {RATE_MAX}")));
        }
        Ok(Self { rate, left: f64::from(rate), since: Instant::now() })
    }

    /// Adds what has accrued: at most that of one second.
    pub fn accrue(&mut self, now: Instant) {
        let rate = f64::from(self.rate);
        let new = now.duration_since(self.since).as_secs_f64() * rate;
        (self.left, self.since) = ((self.left + new).min(rate), now);
    }

    /// Whether one more item may be sent.
    pub fn is_left(&self) -> bool {
        self.left >= 1.0
    }

    /// The time until the next item may be sent; `None`: now.
    pub fn pause(&self) -> Option<Duration> {
        let seconds = (1.0 - self.left) / f64::from(self.rate);
        (!self.is_left()).then(|| Duration::from_secs_f64(seconds))
    }

    /// Takes the allowance of one item. Returns false if none is left.
    pub fn take(&mut self) -> bool {
        let is_left = self.is_left();
        self.left -= f64::from(u8::from(is_left));
        is_left
    }
}

/// Appends an event. JSON has no line breaks outside of strings, and escapes them inside, so an event cannot be
/// forged.
pub fn put(text: &mut String, event: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).expect("what is described can be written as JSON");
    text.push_str("event: ");
    text.push_str(event);
    text.push_str("\ndata: ");
    text.push_str(&data);
    text.push_str("\n\n");
}

/// Appends the event which says that items are missing, and forgets their number, which is returned.
pub fn put_skipped(text: &mut String, items: &str, skipped: &mut u64) -> u64 {
    put(text, "skipped", &json!({ items: *skipped }));
    std::mem::take(skipped)
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
