//! A fleet of vehicles for the benches: the subscriptions of its clients, and the topics on which
//! the vehicles publish.

use std::sync::Arc;

use barid_core::topic_index::{SubscribeOptions, Subscriber};
use mqtt_proto::QoS;

const REGIONS: usize = 100;

/// A session behind the handle that a broker would use.
#[derive(Clone)]
pub struct Session(Arc<u64>);

impl Subscriber for Session {
    fn key(&self) -> u64 {
        *self.0
    }
}

pub const OPTIONS: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtLeastOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

/// Creates `count` sessions.
pub fn sessions(count: usize) -> Vec<Session> {
    (0..count as u64).map(|key| Session(Arc::new(key))).collect()
}

/// Returns `count` filters: 40 % of them exact, 20 % with `+` in the middle, 20 % with `#` at the
/// end, 20 % with `+` in front; and one filter for each region. In shuffled order.
pub fn filters(count: usize) -> Vec<String> {
    let vehicles = vehicles(count);
    let mut filters: Vec<String> = (0..count)
        .map(|at| match at % 5 {
            0 | 1 => topic(at / 5 * 2 + at % 5),
            2 => format!("fleet/+/{}/telemetry", name(at % vehicles)),
            3 => format!("fleet/{}/{}/#", region(at % vehicles), name(at % vehicles)),
            _ => format!("+/{}/{}/telemetry", region(at % vehicles), name(at % vehicles)),
        })
        .collect();
    filters.extend((0..REGIONS).map(|at| format!("fleet/{}/+/telemetry", region(at))));
    shuffle(&mut filters);
    filters
}

/// The topics of up to `some` of the vehicles that have subscribers, in shuffled order.
pub fn topics(count: usize, some: usize) -> Vec<String> {
    let mut vehicles: Vec<usize> = (0..vehicles(count)).collect();
    shuffle(&mut vehicles);
    vehicles.into_iter().take(some).map(topic).collect()
}

pub fn topic(vehicle: usize) -> String {
    format!("fleet/{}/{}/telemetry", region(vehicle), name(vehicle))
}

fn vehicles(count: usize) -> usize {
    count * 2 / 5
}

fn region(vehicle: usize) -> String {
    format!("region-{:02}", vehicle % REGIONS)
}

fn name(vehicle: usize) -> String {
    format!("vehicle-{vehicle:07}")
}

/// Shuffles the items, into the same order in each run.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (1..items.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, (state >> 33) as usize % (at + 1));
    }
}
