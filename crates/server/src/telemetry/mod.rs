//! OpenTelemetry: a thread that sends metrics and spans to a collector, as OTLP over HTTP.
//!
//! What cannot be sent is kept for a while, in bounded memory, and then counted. Clients never wait for it.

mod collector;
mod metrics;
mod otlp;

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::exposition::exposition;
use crate::message_traces::Span;
use crate::rate_limit::Seldom;
use crate::settings::TelemetrySettings;
use crate::shared::Shared;
use crate::system::unix_nanoseconds;
use collector::{Collector, Failure};
use otlp::Origin;

/// Interval between two looks at what has ended.
const TICK: Duration = Duration::from_secs(1);

/// Maximum number of spans in one request.
const BATCH: usize = 512;

/// Maximum number of spans that are kept while the collector cannot be reached.
const KEPT_MAX: usize = 8_192;

/// Longest pause after requests that have failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The thread that sends.
pub struct Telemetry {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Telemetry {
    /// Starts the thread.
    pub fn start(shared: Arc<Shared>, settings: &TelemetrySettings) -> Self {
        let (stop, stopped) = mpsc::channel();
        let collector = Collector::new(settings);
        let interval = settings.metrics.then(|| Duration::from_secs(settings.interval.into()));
        info!(endpoint = settings.endpoint, "metrics and traces go to a collector");
        let origin = Origin::of(&shared);
        let sender = Sender {
            shared,
            collector,
            origin,
            interval,
            kept: Vec::new(),
            pause: Duration::ZERO,
            resumes: Instant::now(),
            failures: Seldom::default(),
        };
        let thread = thread::Builder::new()
            .name("barid-telemetry".into())
            .spawn(move || sender.run(&stopped))
            .expect("the operating system has room for a thread");
        Self { stop, thread }
    }

    /// Sends what there is, if the collector answers, and ends the thread.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

struct Sender {
    shared: Arc<Shared>,
    collector: Collector,
    origin: Origin,
    /// Time between two requests with metrics; `None`: none are sent.
    interval: Option<Duration>,
    /// Spans that were not sent yet.
    kept: Vec<Span>,
    /// The pause after the last failure; zero: the last request has succeeded.
    pause: Duration,
    /// When the next request is due.
    resumes: Instant,
    failures: Seldom,
}

impl Sender {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut metrics_at = self.interval.map(|interval| Instant::now() + interval.min(TICK));
        loop {
            let ends = !matches!(stopped.recv_timeout(TICK), Err(RecvTimeoutError::Timeout));
            let now = Instant::now();
            self.collect();
            if now < self.resumes {
                if ends {
                    return;
                }
                continue;
            }
            self.send_spans();
            if let (Some(at), Some(interval)) = (metrics_at, self.interval)
                && (at <= now || ends)
                && self.pause.is_zero()
            {
                metrics_at = Some(now + interval);
                self.send_metrics();
            }
            if ends {
                return;
            }
        }
    }

    /// Takes the spans that have ended. What has no room is given up.
    fn collect(&mut self) {
        let Some(spans) = &self.shared.spans else { return };
        self.kept.extend(spans.take());
        let lost = self.kept.len().saturating_sub(KEPT_MAX);
        if lost > 0 {
            self.kept.truncate(KEPT_MAX);
            self.shared.telemetry.lose(lost);
        }
    }

    fn send_spans(&mut self) {
        while !self.kept.is_empty() {
            let batch = &self.kept[..self.kept.len().min(BATCH)];
            let (count, request) = (batch.len(), otlp::spans(&self.origin, batch));
            match self.collector.send("/v1/traces", &request) {
                Ok(()) => {
                    self.pause = Duration::ZERO;
                    self.shared.telemetry.sent(count);
                }
                Err(failure) => {
                    let is_lost = !failure.may_be_repeated;
                    self.failed(&failure);
                    if !is_lost {
                        return;
                    }
                    self.shared.telemetry.lose(count);
                }
            }
            self.kept.drain(..count);
        }
    }

    fn send_metrics(&mut self) {
        let text = exposition(&self.shared);
        let request = metrics::request(&self.origin, &text, unix_nanoseconds());
        match self.collector.send("/v1/metrics", &request) {
            Ok(()) => self.pause = Duration::ZERO,
            Err(failure) => self.failed(&failure),
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.shared.telemetry.failed();
        if failure.may_be_repeated {
            self.pause = (self.pause * 2).clamp(TICK, PAUSE_MAX);
            self.resumes = Instant::now() + self.pause;
        }
        if let Some(failures) = self.failures.happened(Instant::now()) {
            let sentence = &failure.sentence;
            warn!(failures, "cannot send telemetry to {}: {sentence}", self.collector.endpoint());
        }
    }
}
