//! Results, as a table for people or as JSON for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::Options;
use super::figures::{Row, grouped, lines, per_second, quantile_rows, quantiles, rss_row};
use super::process::Usage;
use super::scenario::Scenario;

/// Result of opening the connections.
pub struct Setup {
    pub connections: usize,
    pub elapsed: Duration,
    /// Microseconds from connecting to being ready, subscription included.
    pub times: Histogram<u64>,
    pub before: Option<Usage>,
    pub after: Option<Usage>,
}

/// Result of publishing and receiving.
pub struct Traffic {
    pub elapsed: Duration,
    /// Messages that arrived during the measurement.
    pub delivered: u64,
    /// Messages published in total, warm-up included.
    pub sent: u64,
    /// Deliveries that never arrived.
    pub lost: u64,
    /// Deliveries in excess of the expected number.
    pub surplus: u64,
    /// Messages that were due and were not taken by the broker.
    pub unsent: u64,
    /// Connections that the broker closed.
    pub dropped: usize,
    /// Latencies in microseconds.
    pub latencies: Histogram<u64>,
    pub before: Option<Usage>,
    pub after: Option<Usage>,
    /// CPU time of this process during the measurement.
    pub generator_cpu: Option<Duration>,
}

/// Result of one run.
pub struct Report {
    pub scenario: Scenario,
    pub options: Options,
    pub setup: Setup,
    pub traffic: Option<Traffic>,
}

impl Report {
    /// Whether no message was lost or duplicated, and no connection was closed.
    pub fn is_clean(&self) -> bool {
        self.traffic.as_ref().is_none_or(|traffic| {
            let at_most_once = self.options.qos as u8 == 1 || traffic.surplus == 0;
            traffic.lost == 0 && traffic.dropped == 0 && at_most_once
        })
    }

    /// Formats the report for people.
    pub fn table(&self) -> String {
        let Options { n, size, qos, version, .. } = &self.options;
        let (qos, version) = (*qos as u8, name(*version));
        let scenario = self.scenario.name();
        let (title, rows) = if let Some(traffic) = &self.traffic {
            let rate = self.options.rate.map(|rate| format!(", {} a second", grouped(rate.into())));
            let rate = rate.unwrap_or_default();
            let kept = if self.options.persistent { ", persistent sessions" } else { "" };
            let title =
                format!("{scenario}: {n} × {size} B, QoS {qos}, MQTT {version}{kept}{rate}\n");
            (title, traffic_rows(traffic))
        } else {
            (format!("{scenario}: {n}, MQTT {version}\n"), setup_rows(&self.setup))
        };
        title + &lines(rows)
    }

    /// Formats the report for programs, as one object.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "scenario": self.scenario.name(),
            "n": self.options.n,
            "size": self.options.size,
            "qos": self.options.qos as u8,
            "version": name(self.options.version),
            "persistent": self.options.persistent,
            "rate_asked": self.options.rate,
            "connections": self.setup.connections,
            "connections_per_s": per_second(self.setup.connections as u64, self.setup.elapsed),
            "connect_us": quantiles(&self.setup.times),
            "clean": self.is_clean(),
        });
        let fields = object.as_object_mut().expect("made as an object above");
        let mut put = |key: &str, value: Value| drop(fields.insert(key.into(), value));
        if let Some(traffic) = &self.traffic {
            put("delivered_per_s", per_second(traffic.delivered, traffic.elapsed).into());
            put("sent", traffic.sent.into());
            put("lost", traffic.lost.into());
            put("surplus", traffic.surplus.into());
            put("unsent", traffic.unsent.into());
            put("connections_dropped", traffic.dropped.into());
            put("latency_us", quantiles(&traffic.latencies));
            put("broker_cpu_us_per_message", traffic.cpu_us_per_message().into());
            put("generator_cpu_us_per_message", traffic.generator_us_per_message().into());
            put("broker_rss_bytes", traffic.after.map(|usage| usage.rss_bytes).into());
        } else {
            put("broker_rss_bytes", self.setup.after.map(|usage| usage.rss_bytes).into());
            put("broker_rss_bytes_per_connection", self.setup.rss_per_connection().into());
            put("broker_cpu_us_per_connection", self.setup.cpu_us_per_connection().into());
        }
        object
    }
}

impl Setup {
    fn rss_per_connection(&self) -> Option<i64> {
        let grown = self.after?.rss_bytes as i64 - self.before?.rss_bytes as i64;
        Some(grown / self.connections as i64)
    }

    fn cpu_us_per_connection(&self) -> Option<f64> {
        let used = self.after?.cpu.saturating_sub(self.before?.cpu);
        Some(used.as_secs_f64() * 1e6 / self.connections as f64)
    }
}

impl Traffic {
    /// Returns the messages published per second, if each message makes `copies` deliveries.
    pub fn sent_per_s(&self, copies: u32) -> u32 {
        let sent = per_second(self.delivered, self.elapsed) / u64::from(copies);
        sent.try_into().unwrap_or(u32::MAX)
    }

    fn cpu_us_per_message(&self) -> Option<f64> {
        self.us_per_message(self.after?.cpu.saturating_sub(self.before?.cpu))
    }

    fn generator_us_per_message(&self) -> Option<f64> {
        self.us_per_message(self.generator_cpu?)
    }

    fn us_per_message(&self, used: Duration) -> Option<f64> {
        (self.delivered > 0).then(|| used.as_secs_f64() * 1e6 / self.delivered as f64)
    }
}

fn traffic_rows(traffic: &Traffic) -> Vec<Row> {
    let delivered = per_second(traffic.delivered, traffic.elapsed);
    let mut rows = vec![
        ("delivered", grouped(delivered), "messages/s"),
        ("published", grouped(traffic.sent), "messages"),
        ("lost", grouped(traffic.lost), "deliveries"),
    ];
    if traffic.surplus > 0 {
        rows.push(("delivered too often", grouped(traffic.surplus), "deliveries"));
    }
    if traffic.unsent > 0 {
        rows.push(("due but not sent", grouped(traffic.unsent), "messages"));
    }
    if traffic.dropped > 0 {
        rows.push(("connections closed", grouped(traffic.dropped as u64), ""));
    }
    rows.extend(quantile_rows(&traffic.latencies, LATENCY));
    if let Some(micros) = traffic.cpu_us_per_message() {
        rows.push(("broker CPU per message", format!("{micros:.2}"), "µs"));
    }
    rows.extend(traffic.after.map(|usage| rss_row(MEMORY, usage)));
    rows
}

fn setup_rows(setup: &Setup) -> Vec<Row> {
    let rate = per_second(setup.connections as u64, setup.elapsed);
    let mut rows = vec![("connected", grouped(rate), "connections/s")];
    rows.extend(quantile_rows(&setup.times, READY));
    if let Some(micros) = setup.cpu_us_per_connection() {
        rows.push(("broker CPU per connection", format!("{micros:.1}"), "µs"));
    }
    if let Some(bytes) = setup.rss_per_connection() {
        rows.push(("memory per connection", bytes.to_string(), "B"));
    }
    rows.extend(setup.after.map(|usage| rss_row(MEMORY, usage)));
    rows
}

const MEMORY: &str = "broker memory";
const LATENCY: [&str; 4] = ["latency p50", "latency p99", "latency p99.9", "latency max"];
const READY: [&str; 4] =
    ["ready after p50", "ready after p99", "ready after p99.9", "ready after max"];
fn name(version: mqtt_proto::Version) -> &'static str {
    match version {
        mqtt_proto::Version::V5 => "5",
        mqtt_proto::Version::V3_1_1 => "3.1.1",
        mqtt_proto::Version::V3_1 => "3.1",
    }
}
