//! Traces of messages: what becomes of those that carry a sampled trace context, as spans.
//!
//! A publisher or sender writes the context of its own span (W3C Trace Context) into the message: in MQTT 5 as the user
//! property `traceparent`, in AMQP as a message annotation or application property of this name. The message carries it
//! wherever it goes: into stored sessions and queues, through bindings, to other brokers. So nothing has to be remembered
//! between its arrival and its delivery, and both spans belong to the same trace.
//!
//! One span begins when the message arrives and ends with its acknowledgement, which is sent when all is durable that it promises; a
//! part of it is the time for which the acknowledgement waits. Another one begins when the message is sent to a client, and ends with
//! the acknowledgement of that.

mod amqp;
mod context;
mod mqtt;
mod span;
mod tap;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use barid_engine::random::Random;
use barid_engine::tapping::{MessageTracing, Tap, Tapped, Tracer};
use parking_lot::Mutex;

pub use span::{Span, Step, Value};
use tap::Connection;

/// Maximum number of spans that wait to be sent. Beyond it they are counted as skipped.
const WAITING_MAX: usize = 8_192;

/// All spans that have ended, until they are taken.
#[derive(Debug)]
pub struct Spans {
    waiting: Mutex<Vec<Span>>,
    /// The share of sampled traces that is recorded, 0 to 1.
    ratio: f64,
    /// Maximum number of messages of one tenant that are recorded in a second.
    rate: u32,
    random: Random,
    skipped: AtomicU64,
}

impl Spans {
    /// Creates an empty collection.
    pub fn new(ratio: f64, rate: u32, random: Random) -> Self {
        let (waiting, skipped) = (Mutex::default(), AtomicU64::new(0));
        Self { waiting, ratio, rate, random, skipped }
    }

    /// Takes the spans that have ended.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.waiting.lock())
    }

    /// Number of spans that were left out because there were too many.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    fn end(&self, span: Span) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(span);
        } else {
            self.skip();
        }
    }

    fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Follows the clients of all tenants.
#[derive(Debug)]
pub struct MessageTraces(pub Arc<Spans>);

impl MessageTracing for MessageTraces {
    fn tracer_of(&self, tenant: &str) -> Arc<dyn Tracer> {
        let spans = Arc::clone(&self.0);
        Arc::new(OfTenant(Arc::new(Tenant { name: tenant.into(), spans, used: Mutex::default() })))
    }
}

/// The spans of one tenant.
#[derive(Debug)]
struct Tenant {
    name: Arc<str>,
    spans: Arc<Spans>,
    used: Mutex<Used>,
}

/// What a tenant has used of its rate in the present second.
#[derive(Debug, Default)]
struct Used {
    since: Option<Instant>,
    count: u32,
}

impl Tenant {
    /// Whether a message with such a context is recorded. Whoever marks all messages as sampled keeps no other tenant out.
    fn records(&self, context: &context::TraceContext) -> bool {
        if !context.is_within(self.spans.ratio) {
            return false;
        }
        let now = Instant::now();
        let mut used = self.used.lock();
        if used.since.is_none_or(|since| now.duration_since(since).as_secs() >= 1) {
            *used = Used { since: Some(now), count: 0 };
        }
        used.count += 1;
        let has_room = used.count <= self.spans.rate;
        drop(used);
        if !has_room {
            self.spans.skip();
        }
        has_room
    }
}

#[derive(Debug)]
struct OfTenant(Arc<Tenant>);

impl Tracer for OfTenant {
    fn tap(&self, tapped: &Tapped<'_>) -> Arc<dyn Tap> {
        Arc::new(Connection::new(&self.0, tapped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_rate_of_its_own() {
        let spans = Arc::new(Spans::new(1.0, 3, Random(|bytes| bytes.fill(1))));
        let tenant =
            |name: &str| Tenant { name: name.into(), spans: spans.clone(), used: Mutex::default() };
        let (one, other) = (tenant("a"), tenant("b"));
        let context = context::TraceContext { trace: [7; 16], parent: [8; 8] };
        let recorded = (0..10).filter(|_| one.records(&context)).count();
        assert_eq!((recorded, spans.skipped()), (3, 7));
        assert!(other.records(&context));
    }
}
