//! Measures the memory that the topic index uses and frees. One test, because the allocator counts
//! for the whole process.

use std::alloc::System;

use barid_core::topic_index::{SubscribeOptions, Subscriber, TopicIndex};
use mqtt_proto::QoS;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SUBSCRIPTIONS: u64 = 100_000;
/// Size of the table of change counters, which an index keeps once it was large.
const CHANGE_COUNTERS: usize = 64 * 1024;
const EMPTY_MAX: usize = 4 * 1024;
const PER_SUBSCRIPTION_MAX: usize = 200;

#[derive(Clone)]
struct Session(u64);

impl Subscriber for Session {
    fn key(&self) -> u64 {
        self.0
    }
}

const PLAIN: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn filter(at: u64) -> String {
    let vehicle = at / 5 * 2 + at % 2;
    let region = vehicle % 100;
    match at % 5 {
        0 | 1 => format!("fleet/region-{region}/vehicle-{vehicle:07}/telemetry"),
        2 => format!("fleet/+/vehicle-{vehicle:07}/telemetry"),
        3 => format!("fleet/region-{region}/vehicle-{vehicle:07}/#"),
        _ => format!("+/region-{region}/vehicle-{vehicle:07}/telemetry"),
    }
}

#[test]
fn subscriptions_are_small_and_leave_nothing_behind() {
    let before = live_bytes();
    let index = TopicIndex::default();
    assert!(size_of_val(&index) + live_bytes() - before < EMPTY_MAX);

    for at in 0..SUBSCRIPTIONS {
        index.subscribe(&filter(at), &Session(at), PLAIN);
    }
    let each = (live_bytes() - before) / index.subscription_count();
    assert!(each < PER_SUBSCRIPTION_MAX, "{each} bytes");

    for at in 0..SUBSCRIPTIONS {
        assert!(index.unsubscribe(&filter(at), at));
    }
    let left = live_bytes() - before;
    assert!(left < CHANGE_COUNTERS + 2 * EMPTY_MAX, "{left} bytes");
}
