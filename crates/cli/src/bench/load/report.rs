//! Results, as a table for people or as JSON for programs.

use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::super::figures::{grouped, lines, per_second, quantile_rows, quantiles, rss_row};
use super::super::process::Usage;
use super::Shape;
use crate::output::print;

/// Result of one measurement.
pub struct Report {
    pub shape: Shape,
    pub elapsed: Duration,
    /// Requests answered during the measurement.
    pub operations: u64,
    /// Requests answered otherwise than expected, from the start to the end.
    pub errors: u64,
    /// Requests never answered.
    pub unanswered: u64,
    /// Latencies in microseconds.
    pub sets: Histogram<u64>,
    pub gets: Histogram<u64>,
    /// CPU time of the server during the measurement.
    pub cpu: Option<Duration>,
    pub after: Option<Usage>,
    /// CPU time of this process during the measurement.
    pub generator_cpu: Option<Duration>,
}

impl Report {
    /// Prints the report, with `what` as the name of the scenario.
    pub fn print(&self, what: &str) -> anyhow::Result<ExitCode> {
        let is_json = self.shape.json;
        print(if is_json { format!("{}\n", self.json(what)) } else { self.table(what) })?;
        let is_clean = self.errors == 0 && self.unanswered == 0;
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn table(&self, what: &str) -> String {
        let Shape { n, in_flight, sets, size, keys, .. } = &self.shape;
        let noun = if *keys == 1 { "key" } else { "keys" };
        let keys = grouped((*keys).into());
        let title = format!(
            "{what}: {n} × {in_flight} in flight, {sets} % SETs, {size} B, {keys} {noun}\n"
        );
        let operations = per_second(self.operations, self.elapsed);
        let mut rows = vec![
            ("answered", grouped(operations), "operations/s"),
            ("wrong answers", grouped(self.errors), ""),
            ("never answered", grouped(self.unanswered), ""),
        ];
        rows.extend(quantile_rows(&self.sets, ["SET p50", "SET p99", "SET p99.9", "SET max"]));
        rows.extend(quantile_rows(&self.gets, ["GET p50", "GET p99", "GET p99.9", "GET max"]));
        if let (Some(micros), Some(rate)) = (self.us_per_operation(self.cpu), self.per_cpu_s()) {
            rows.push(("server CPU per operation", format!("{micros:.2}"), "µs"));
            rows.push(("per second of its CPU", grouped(rate), "operations"));
        }
        rows.extend(self.after.map(|usage| rss_row("server memory", usage)));
        title + &lines(rows)
    }

    fn json(&self, what: &str) -> Value {
        let Shape { n, in_flight, sets, size, keys, .. } = &self.shape;
        json!({
            "scenario": what,
            "n": n,
            "in_flight": in_flight,
            "sets_percent": sets,
            "size": size,
            "keys": keys,
            "operations_per_s": per_second(self.operations, self.elapsed),
            "operations_per_cpu_s": self.per_cpu_s(),
            "errors": self.errors,
            "unanswered": self.unanswered,
            "set_latency_us": quantiles(&self.sets),
            "get_latency_us": quantiles(&self.gets),
            "server_cpu_us_per_operation": self.us_per_operation(self.cpu),
            "generator_cpu_us_per_operation": self.us_per_operation(self.generator_cpu),
            "server_rss_bytes": self.after.map(|usage| usage.rss_bytes),
        })
    }

    fn per_cpu_s(&self) -> Option<u64> {
        self.cpu.filter(|cpu| !cpu.is_zero()).map(|cpu| per_second(self.operations, cpu))
    }

    fn us_per_operation(&self, used: Option<Duration>) -> Option<f64> {
        let used = used.filter(|_| self.operations > 0)?;
        Some(used.as_secs_f64() * 1e6 / self.operations as f64)
    }
}
