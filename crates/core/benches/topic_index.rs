//! Routing, checking a cached route, and subscribing: `cargo bench -p barid-core --bench topic_index`.

use std::hint::black_box;

use barid_core::topic_index::{Subscriber, TopicIndex};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

mod fleet;

fn mixed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mixed");
    for size in [1_000, 100_000, 1_000_000] {
        let sessions = fleet::sessions(size / 4);
        let index = index(&fleet::filters(size), &sessions);
        let topics = fleet::topics(size, 200_000);
        let mut next = topics.iter().cycle();
        group.bench_function(BenchmarkId::new("route", size), |bench| {
            bench.iter(|| index.route(next.next().expect("it is a cycle")));
        });
        let route = index.route(&topics[0]);
        group.bench_function(BenchmarkId::new("is_current", size), |bench| {
            bench.iter(|| black_box(&route).is_current(&index));
        });
        for filter in ["fleet/region-00/a-new-vehicle/state", "fleet/+/a-new-vehicle/state"] {
            let name = if filter.contains('+') { "come_and_go_wildcard" } else { "come_and_go" };
            group.bench_function(BenchmarkId::new(name, size), |bench| {
                bench.iter(|| {
                    index.subscribe(filter, &sessions[0], fleet::OPTIONS);
                    index.unsubscribe(filter, sessions[0].key());
                });
            });
        }
    }
    group.finish();
}

fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fan_out");
    for size in [1_000, 100_000] {
        let index = TopicIndex::default();
        let sessions = fleet::sessions(size);
        for session in &sessions {
            index.subscribe("alarm", session, fleet::OPTIONS);
        }
        for session in &sessions[..size / 10] {
            index.subscribe("+", session, fleet::OPTIONS);
        }
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(BenchmarkId::new("route", size), |bench| {
            bench.iter(|| index.route("alarm"));
        });
    }
    group.finish();
}

/// Filters of about twenty levels that all match a topic nearly to its end, as many as `max_pattern_levels` admits.
fn patterns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("patterns");
    let session = &fleet::sessions(1)[0];
    for most in [2_048, 2_000_000] {
        let index = TopicIndex::default();
        for plus in 0..100_000_u64 {
            let level = |at| if plus >> at & 1 == 1 { "+" } else { "a" };
            let filter = (0..19_u64).map(level).collect::<Vec<_>>().join("/") + "/+/b";
            if index.admits(&filter, most) {
                index.subscribe(&filter, session, fleet::OPTIONS);
            }
        }
        let topic = "a/".repeat(20) + "c";
        group.bench_function(BenchmarkId::new("route", most), |bench| {
            bench.iter(|| index.route(&topic));
        });
    }
    group.finish();
}

/// Creates an index with all `filters`, four for each session.
fn index(filters: &[String], sessions: &[fleet::Session]) -> TopicIndex<fleet::Session> {
    let index = TopicIndex::with_seed(1);
    for (filter, session) in filters.iter().zip(sessions.iter().cycle()) {
        index.subscribe(filter, session, fleet::OPTIONS);
    }
    index
}

criterion_group!(benches, mixed, fan_out, patterns);
criterion_main!(benches);
