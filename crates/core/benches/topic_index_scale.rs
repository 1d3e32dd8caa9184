//! Prints the cost of a subscription and of a route at sizes up to a million subscriptions: `cargo
//! bench -p barid-core --bench topic_index_scale`.

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};

use barid_core::topic_index::TopicIndex;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

mod fleet;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const TOPICS_MAX: usize = 200_000;

fn main() {
    let before = live_bytes();
    let empty = TopicIndex::<fleet::Session>::default();
    println!("an empty index: {} bytes", size_of_val(&empty) + live_bytes() - before);
    println!(
        "{:>13} | {:^30} | {:>11} | {:>9} | {:>7} | {:^26} | {:>7} | is_current",
        "subscriptions",
        "subscribe: mean, p99.9, max",
        "unsubscribe",
        "bytes per",
        "left at",
        "route: mean, p50, p99",
        "targets",
    );
    for size in SIZES {
        row(size);
    }
}

fn row(size: usize) {
    let filters = fleet::filters(size);
    let sessions = fleet::sessions(size / 4);
    let topics = fleet::topics(size, TOPICS_MAX);

    let before = live_bytes();
    let index = TopicIndex::with_seed(1);
    let with_sessions = || filters.iter().zip(sessions.iter().cycle());
    let subscribe = Times::of(with_sessions(), |(filter, session)| {
        index.subscribe(filter, session, fleet::OPTIONS);
    });
    let bytes = (live_bytes() - before - subscribe.bytes()) / index.subscription_count();

    let mut targets = 0;
    let route = Times::of(&topics, |topic| {
        targets += black_box(index.route(topic)).recipients().len();
    });
    let routes: Vec<_> = topics.iter().take(1000).map(|topic| index.route(topic)).collect();
    let current = Times::of((0..100).flat_map(|_| &routes), |route| {
        assert!(black_box(route).is_current(&index));
    });
    drop(routes);

    let unsubscribe = Times::of(with_sessions(), |(filter, session)| {
        index.unsubscribe(filter, barid_core::topic_index::Subscriber::key(session));
    });
    assert!(index.is_empty());
    let times = [&subscribe, &route, &current, &unsubscribe];
    let left = live_bytes() - before - times.map(Times::bytes).iter().sum::<usize>();
    println!(
        "{size:>13} | {:>6.0} ns {:>6.0} ns {:>5.1} ms | {:>8.0} ns | {bytes:>9} | {:>7} | {:>5.0} ns {:>5.0} ns {:>5.0} ns | {:>7.1} | {:>4.1} ns",
        subscribe.mean(),
        subscribe.quantile(0.999),
        subscribe.quantile(1.0) / 1e6,
        unsubscribe.mean(),
        left,
        route.mean(),
        route.quantile(0.5),
        route.quantile(0.99),
        targets as f64 / topics.len() as f64,
        current.total.as_nanos() as f64 / current.sorted.len() as f64,
    );
}

/// The durations of many calls.
struct Times {
    total: Duration,
    sorted: Vec<Duration>,
}

impl Times {
    fn of<T>(items: impl IntoIterator<Item = T> + Clone, mut call: impl FnMut(T)) -> Self {
        let mut sorted = Vec::new();
        let start = Instant::now();
        let mut last = start;
        for item in items {
            call(item);
            let now = Instant::now();
            sorted.push(now - last);
            last = now;
        }
        sorted.sort_unstable();
        Self { total: last - start, sorted }
    }

    /// Memory used by the measurements themselves, in bytes.
    fn bytes(&self) -> usize {
        self.sorted.capacity() * size_of::<Duration>()
    }

    fn mean(&self) -> f64 {
        self.total.as_nanos() as f64 / self.sorted.len() as f64
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = (self.sorted.len() as f64 * share) as usize;
        self.sorted[at.min(self.sorted.len() - 1)].as_nanos() as f64
    }
}

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}
