//! `/v1/history`: rates of the broker and of its tenants over the last hours, kept in bounded memory.
//!
//! A task of the admin thread reads counters every five seconds. It visits no sessions, so its cost grows with the
//! number of tenants only.

mod series;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use barid_core::time::WallTime;
use barid_engine::metrics::Totals;
use mqtt_proto::PacketType;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Served;
use super::access::Requester;
use super::answer::{Answer, Refusal};
use super::rfc3339::Rfc3339;
use crate::process;
use crate::shared::Shared;
use series::{Series, Step};
use utoipa::{IntoParams, ToSchema};

/// Maximum number of tenants with a history of their own. It takes 35 KB for each.
const TENANTS_MAX: usize = 64;

/// Number of points for which a tenant has had no client and no message before another one takes its place: those of
/// five minutes.
const QUIET: usize = 60;

/// The values of a point that each tenant has as well.
const OF_TENANTS: [&str; 6] =
    ["connections", "messages_in", "messages_out", "bytes_in", "bytes_out", "dropped"];

/// The further values of a point of the broker.
const OF_PROCESS: [&str; 2] = ["cpu", "resident_bytes"];

/// Number of values in a point of a tenant, and of the broker.
const TENANT: usize = OF_TENANTS.len();
const BROKER: usize = TENANT + OF_PROCESS.len();

/// Rates by name, each per second.
pub type Rates = BTreeMap<&'static str, f32>;

/// The rates of the last hours.
#[derive(Debug)]
pub struct History(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    broker: Series<BROKER>,
    tenants: BTreeMap<Box<str>, Series<TENANT>>,
    last: Option<Sample>,
}

/// The counters of all tenants at one moment.
#[derive(Debug)]
struct Sample {
    at: Instant,
    wall: WallTime,
    cpu_seconds: f64,
    tenants: BTreeMap<Box<str>, Counted>,
    /// The counters of the whole broker.
    all: Counted,
}

/// The counters of a tenant, or of all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    connections: usize,
    /// In the order of [`OF_TENANTS`], from the second value on.
    counters: [u64; TENANT - 1],
}

impl Counted {
    fn of(connections: usize, totals: &Totals) -> Self {
        let publish = PacketType::Publish as usize;
        let counters = [
            totals.packets_received[publish] + totals.amqp_received[0],
            totals.packets_sent[publish] + totals.amqp_sent[0],
            totals.bytes_received.iter().sum::<u64>() + totals.amqp_received[1],
            totals.bytes_sent.iter().sum::<u64>() + totals.amqp_sent[1],
            totals.dropped.iter().sum(),
        ];
        Self { connections, counters }
    }

    fn add(&mut self, more: &Self) {
        self.connections += more.connections;
        self.counters.iter_mut().zip(more.counters).for_each(|(sum, counter)| *sum += counter);
    }

    /// The point at this moment, with the rates since an earlier one.
    fn since(&self, earlier: &Self, elapsed: Duration) -> [f64; TENANT] {
        let mut point = [self.connections as f64; TENANT];
        for (place, rate) in point[1..].iter_mut().enumerate() {
            let counted = self.counters[place].saturating_sub(earlier.counters[place]);
            *rate = counted as f64 / elapsed.as_secs_f64();
        }
        point
    }
}

impl Sample {
    fn of(shared: &Shared) -> Self {
        let engine = &shared.engine;
        let (at, wall) = (Instant::now(), engine.clock.wall());
        let (tenants, removed) = engine.tenants.counted();
        let mut all = Counted::default();
        removed.iter().for_each(|(_, totals)| all.add(&Counted::of(0, totals)));
        let counted = |tenant: &Arc<barid_engine::tenant::Tenant>| {
            let counted = Counted::of(tenant.connections(), &tenant.totals());
            all.add(&counted);
            (tenant.name.clone(), counted)
        };
        let tenants = tenants.iter().map(counted).collect();
        let cpu_seconds = process::cpu_seconds().unwrap_or_default();
        Self { at, wall, cpu_seconds, tenants, all }
    }
}

impl History {
    pub fn new() -> Self {
        let (broker, tenants) = (Series::new(), BTreeMap::new());
        Self(Mutex::new(Kept { broker, tenants, last: None }))
    }

    /// The last rates of a tenant; `None`: it has no history.
    pub fn rates(&self, tenant: &str) -> Option<Rates> {
        let history = self.0.lock();
        let point = history.tenants.get(tenant)?.points(Step::Fine).next_back()?;
        let named = OF_TENANTS.into_iter().zip(*point);
        Some(named.filter(|(name, _)| *name != "connections").collect())
    }

    /// Counts, again and again.
    pub async fn run(&self, shared: &Shared) -> std::convert::Infallible {
        let mut ticks = tokio::time::interval(Step::Fine.duration());
        // After a pause, points that cannot be told apart any more are left out.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let sample = Sample::of(shared);
            self.0.lock().push(sample);
        }
    }
}

impl Kept {
    fn push(&mut self, sample: Sample) {
        if let Some(last) = self.last.take() {
            let elapsed = sample.at.duration_since(last.at).max(Duration::from_millis(1));
            let cpu = (sample.cpu_seconds - last.cpu_seconds).max(0.0) / elapsed.as_secs_f64();
            let memory = process::resident_bytes().unwrap_or_default();
            let mut point = [0.0; BROKER];
            point[..TENANT].copy_from_slice(&sample.all.since(&last.all, elapsed));
            point[TENANT..].copy_from_slice(&[cpu, memory]);
            self.broker.push(point);
            self.push_tenants(&sample, &last, elapsed);
        }
        self.last = Some(sample);
    }

    fn push_tenants(&mut self, sample: &Sample, last: &Sample, elapsed: Duration) {
        for (name, counted) in &sample.tenants {
            let earlier = last.tenants.get(name).copied().unwrap_or_default();
            let point = counted.since(&earlier, elapsed);
            if self.tenants.contains_key(name) || is_active(&point) && self.has_place() {
                self.tenants.entry(name.clone()).or_insert_with(Series::new).push(point);
            }
        }
        // A tenant that was removed may come back, and its points are as far apart as those of the others.
        for (name, series) in &mut self.tenants {
            if !sample.tenants.contains_key(name) {
                series.push([0.0; TENANT]);
            }
        }
    }

    /// Whether one more tenant can have a history. If there are too many, the one goes that was quiet longest.
    fn has_place(&mut self) -> bool {
        if self.tenants.len() < TENANTS_MAX {
            return true;
        }
        let quiet = |series: &Series<TENANT>| {
            series.since(|point| is_active(&point.map(f64::from))).unwrap_or(usize::MAX)
        };
        let longest = self.tenants.iter().map(|(name, series)| (quiet(series), name.clone())).max();
        let gone = longest.filter(|(points, _)| *points >= QUIET);
        gone.is_some_and(|(_, name)| self.tenants.remove(&name).is_some())
    }
}

/// Whether a tenant has had a client or a message.
fn is_active(point: &[f64; TENANT]) -> bool {
    point.iter().any(|value| *value > 0.0)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only those of this tenant.
    tenant: Option<String>,
    /// Seconds between two values: 5 (the default) for the last hour, or 120 for the last day.
    step: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub struct Shown {
    /// The tenant; `None`: the whole broker.
    tenant: Option<String>,
    /// Seconds between two values.
    step_seconds: u64,
    /// The time of the last point.
    until: Option<Rfc3339>,
    /// The values by name, the oldest first.
    values: BTreeMap<&'static str, Vec<f32>>,
}

/// Shows the history of the broker, or of a tenant.
#[utoipa::path(
    get, path = "/v1/history", operation_id = "show_history",
    params(Question),
    responses((status = 200, body = Shown))
)]
pub async fn show(
    State(served): State<Served>,
    Extension(by): Extension<Requester>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Shown> {
    let Query(Question { tenant, step }) = question?;
    let tenant = by.confine(tenant)?;
    let seconds = step.unwrap_or(Step::Fine.duration().as_secs());
    let step = Step::ALL.into_iter().find(|step| step.duration().as_secs() == seconds);
    let step = step.ok_or_else(|| Refusal::bad_request("step must be 5 or 120"))?;
    let history = served.history.0.lock();
    let values = match &tenant {
        None => values(&[&OF_TENANTS[..], &OF_PROCESS[..]].concat(), history.broker.points(step)),
        Some(tenant) => match history.tenants.get(&**tenant) {
            Some(series) => values(&OF_TENANTS, series.points(step)),
            None => values::<TENANT>(&OF_TENANTS, std::iter::empty()),
        },
    };
    let until = history.last.as_ref().map(|last| last.wall.into());
    Ok(Json(Shown { tenant, step_seconds: seconds, until, values }))
}

fn values<'a, const N: usize>(
    names: &[&'static str],
    points: impl Iterator<Item = &'a [f32; N]>,
) -> BTreeMap<&'static str, Vec<f32>> {
    let points: Vec<_> = points.collect();
    let of = |place: usize| points.iter().map(|point| point[place]).collect();
    names.iter().enumerate().map(|(place, name)| (*name, of(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, tenants: &[(&str, u64)]) -> Sample {
        let counted = |messages| Counted { connections: 1, counters: [messages, 0, 0, 0, 0] };
        let mut all = Counted::default();
        tenants.iter().for_each(|(_, messages)| all.add(&counted(*messages)));
        let tenants =
            tenants.iter().map(|(name, messages)| ((*name).into(), counted(*messages))).collect();
        Sample { at, wall: WallTime::default(), cpu_seconds: 0.0, tenants, all }
    }

    fn state() -> Kept {
        let (broker, tenants) = (Series::new(), BTreeMap::new());
        Kept { broker, tenants, last: None }
    }

    #[test]
    fn rates_are_those_between_two_moments() {
        let (mut state, start) = (state(), Instant::now());
        for (seconds, a, b) in [(0, 100, 0), (5, 150, 10), (15, 150, 30)] {
            state.push(sample(start + Duration::from_secs(seconds), &[("a", a), ("b", b)]));
        }
        let of = |values: &BTreeMap<&str, Vec<f32>>| values["messages_in"].clone();
        let names = [&OF_TENANTS[..], &OF_PROCESS[..]].concat();
        assert_eq!(of(&values(&names, state.broker.points(Step::Fine))), [12.0, 2.0]);
        assert_eq!(of(&values(&OF_TENANTS, state.tenants["a"].points(Step::Fine))), [10.0, 0.0]);
        // Its counters begin anew with the broker only, but a rate is never negative.
        state.push(sample(start + Duration::from_secs(20), &[("b", 30)]));
        assert_eq!(of(&values(&names, state.broker.points(Step::Fine))), [12.0, 2.0, 0.0]);
        assert_eq!(
            of(&values(&OF_TENANTS, state.tenants["a"].points(Step::Fine))),
            [10.0, 0.0, 0.0]
        );
    }

    #[test]
    fn the_tenants_that_were_active_last_have_a_history() {
        let (mut state, start) = (state(), Instant::now());
        let names: Vec<_> = (0..=TENANTS_MAX).map(|number| format!("t{number:02}")).collect();
        let all: Vec<_> = names.iter().map(|name| (&**name, 1)).collect();
        let mut seconds = 0;
        let mut push = |state: &mut Kept, tenants: &[(&str, u64)]| {
            state.push(sample(start + Duration::from_secs(seconds), tenants));
            seconds += 5;
        };
        push(&mut state, &all);
        push(&mut state, &all);
        assert_eq!(state.tenants.len(), TENANTS_MAX);
        assert!(!state.tenants.contains_key("t64"), "there was no place");
        for _ in 0..QUIET {
            push(&mut state, &all[1..]);
        }
        push(&mut state, &all[1..]);
        assert!(state.tenants.contains_key("t64") && !state.tenants.contains_key("t00"));
        assert_eq!(state.tenants.len(), TENANTS_MAX);
    }
}
