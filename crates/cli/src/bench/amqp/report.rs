//! Results, as a table for people or as JSON for programs.

use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::super::figures::{Row, grouped, lines, per_second, quantile_rows, quantiles, rss_row};
use super::super::process::Usage;
use super::ledger::Counts;
use super::{Options, Scenario};
use crate::output::print;

/// Result of one measurement.
pub struct Report {
    pub options: Options,
    /// Storing, before anything was received.
    pub stored: Option<Span>,
    /// Receiving.
    pub span: Span,
    /// Counts from the first connection to the last.
    pub counts: Counts,
    pub lost: u64,
    /// Latencies in microseconds.
    pub stored_in: Histogram<u64>,
    pub received_in: Histogram<u64>,
    pub accepted_in: Histogram<u64>,
    /// Time from the start until a receiver was granted its first link.
    pub first_accepted: Option<Duration>,
    pub after: Option<Usage>,
}

/// A span of time, and the number of messages that came through in it.
pub struct Span {
    pub messages: u64,
    pub elapsed: Duration,
    /// CPU time of the broker.
    pub cpu: Option<Duration>,
    /// CPU time of this process.
    pub generator_cpu: Option<Duration>,
}

impl Report {
    /// Whether every message arrived once and in order. Messages that remain in the queue when time is up
    /// are not lost.
    fn is_clean(&self) -> bool {
        let Counts { refused, again, disordered, .. } = self.counts;
        let is_lost = self.lost > 0 && self.options.scenario == Scenario::Live;
        !is_lost && refused == 0 && again == 0 && disordered == 0 && self.span.messages > 0
    }

    /// Prints the report.
    pub fn print(&self) -> anyhow::Result<ExitCode> {
        let is_json = self.options.json;
        print(if is_json { format!("{}\n", self.json()) } else { self.table() })?;
        Ok(if self.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn table(&self) -> String {
        let Options { scenario, sessions, senders, receivers, size, rate, plain, .. } =
            &self.options;
        let rate = rate.map(|rate| format!(", {} a second", grouped(rate.into())));
        let sessions = match plain {
            true => "no sessions".to_owned(),
            false => counted(*sessions, "session"),
        };
        let title = format!(
            "{}: {sessions}, {}, {}, {size} B{}\n",
            scenario.name(),
            counted(*senders, "sender"),
            counted(*receivers, "receiver"),
            rate.unwrap_or_default()
        );
        let mut rows = Vec::new();
        if let Some(stored) = &self.stored {
            rows.push(("stored", grouped(stored.per_second()), "messages/s"));
            rows.extend(stored.us_row("broker CPU per stored"));
        }
        rows.push(("completed", grouped(self.span.per_second()), "messages/s"));
        rows.extend(self.fault_rows());
        rows.extend(quantile_rows(&self.stored_in, STORED));
        if *scenario == Scenario::Live {
            rows.extend(quantile_rows(&self.received_in, RECEIVED));
        }
        if self.options.taken().is_some() {
            rows.extend(quantile_rows(&self.accepted_in, ACCEPTED));
        }
        rows.extend(self.span.us_row("broker CPU per message"));
        if let Some(rate) = self.span.per_cpu_s() {
            rows.push(("per second of its CPU", grouped(rate), "messages"));
        }
        rows.extend(self.after.map(|usage| rss_row("broker memory", usage)));
        title + &lines(rows)
    }

    fn fault_rows(&self) -> Vec<Row> {
        let Counts { refused, again, disordered, .. } = self.counts;
        let lost = if self.options.scenario == Scenario::Live { "lost" } else { "left" };
        let mut rows = vec![(lost, grouped(self.lost), "messages")];
        let others =
            [("refused", refused), ("received again", again), ("out of order", disordered)];
        let faults = others.into_iter().filter(|(_, count)| *count > 0);
        rows.extend(faults.map(|(label, count)| (label, grouped(count), "messages")));
        rows
    }

    fn json(&self) -> Value {
        let Options { scenario, sessions, senders, receivers, size, rate, plain, window, .. } =
            &self.options;
        let Counts { sent, accepted, refused, received, again, disordered, completed } =
            self.counts;
        let stored = self.stored.as_ref();
        json!({
            "scenario": scenario.name(),
            "sessions": sessions,
            "plain": plain,
            "senders": senders,
            "receivers": receivers,
            "size": size,
            "window": window,
            "rate_asked": rate,
            "stored_per_s": stored.map(Span::per_second),
            "broker_cpu_us_per_stored": stored.and_then(|span| span.us_per_message(span.cpu)),
            "completed_per_s": self.span.per_second(),
            "completed_per_cpu_s": self.span.per_cpu_s(),
            "sent": sent,
            "accepted": accepted,
            "received": received,
            "completed": completed,
            "lost": self.lost,
            "refused": refused,
            "again": again,
            "disordered": disordered,
            "clean": self.is_clean(),
            "store_latency_us": quantiles(&self.stored_in),
            "latency_us": quantiles(&self.received_in),
            "accept_latency_us": quantiles(&self.accepted_in),
            "first_accepted_s": self.first_accepted.map(|after| after.as_secs_f64()),
            "broker_cpu_us_per_message": self.span.us_per_message(self.span.cpu),
            "generator_cpu_us_per_message": self.span.us_per_message(self.span.generator_cpu),
            "broker_rss_bytes": self.after.map(|usage| usage.rss_bytes),
        })
    }
}

impl Span {
    fn per_second(&self) -> u64 {
        per_second(self.messages, self.elapsed)
    }

    fn per_cpu_s(&self) -> Option<u64> {
        self.cpu.filter(|cpu| !cpu.is_zero()).map(|cpu| per_second(self.messages, cpu))
    }

    fn us_per_message(&self, used: Option<Duration>) -> Option<f64> {
        let used = used.filter(|_| self.messages > 0)?;
        Some(used.as_secs_f64() * 1e6 / self.messages as f64)
    }

    fn us_row(&self, label: &'static str) -> Option<Row> {
        let micros = self.us_per_message(self.cpu)?;
        Some((label, format!("{micros:.2}"), "µs"))
    }
}

const STORED: [&str; 4] =
    ["stored after p50", "stored after p99", "stored after p99.9", "stored after max"];
const RECEIVED: [&str; 4] =
    ["received after p50", "received after p99", "received after p99.9", "received after max"];
const ACCEPTED: [&str; 4] =
    ["session after p50", "session after p99", "session after p99.9", "session after max"];

/// Formats a number with its noun, in the plural unless the number is 1.
fn counted(number: u32, one: &str) -> String {
    format!("{} {one}{}", grouped(number.into()), if number == 1 { "" } else { "s" })
}
