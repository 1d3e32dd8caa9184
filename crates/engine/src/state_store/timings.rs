//! Latency of requests: from when a request was read to when its answer is durable.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;
use std::time::Duration;

/// Buckets for each doubling of the time: quantiles are exact to an eighth.
const STEPS: usize = 8;

/// Number of doublings, beginning with one microsecond: the last bucket begins at about an hour.
const DOUBLINGS: usize = 32;

/// Length of a window. Quantiles cover the current window and the previous one.
const WINDOW: Duration = Duration::from_secs(60);

/// A histogram of latencies over the last one or two windows, and totals since the start.
#[derive(Debug)]
pub struct Timings {
    recent: Window,
    before: Mutex<(Duration, Vec<u64>)>,
    count: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Debug)]
struct Window([AtomicU64; STEPS * DOUBLINGS]);

/// A summary of the latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The median of the last one or two minutes; zero if there were no requests.
    pub p50: Duration,
    /// The 99th percentile of the last one or two minutes; zero if there were no requests.
    pub p99: Duration,
    /// Number of requests since the start.
    pub count: u64,
    /// Sum of the latencies of all requests since the start.
    pub sum: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            recent: Window(std::array::from_fn(|_| AtomicU64::new(0))),
            before: Mutex::new((Duration::ZERO, vec![0; STEPS * DOUBLINGS])),
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }
}

impl Timings {
    /// Counts `requests` requests with a latency of `time`.
    pub fn record(&self, time: Duration, requests: u64) {
        self.recent.0[bucket(time)].fetch_add(requests, Ordering::Relaxed);
        self.count.fetch_add(requests, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos.saturating_mul(requests), Ordering::Relaxed);
    }

    /// Begins a new window if the current one is over, and forgets the previous one. `uptime` is that of the
    /// process.
    pub fn turn(&self, uptime: Duration) {
        let mut before = self.before.lock();
        if uptime.saturating_sub(before.0) >= WINDOW {
            let recent = self.recent.0.iter().map(|bucket| bucket.swap(0, Ordering::Relaxed));
            *before = (uptime, recent.collect());
        }
    }

    /// Returns the summary at this moment.
    pub fn summary(&self) -> Summary {
        let before = self.before.lock();
        let recent = self.recent.0.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let both: Vec<_> = recent.zip(&before.1).map(|(recent, before)| recent + before).collect();
        Summary {
            p50: quantile(&both, 0.5),
            p99: quantile(&both, 0.99),
            count: self.count.load(Ordering::Relaxed),
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

fn bucket(time: Duration) -> usize {
    let micros = time.as_nanos() as f64 / 1e3;
    let bucket = micros.max(1.0).log2() * STEPS as f64;
    (bucket as usize).min(STEPS * DOUBLINGS - 1)
}

/// Returns the upper bound of the bucket that contains the quantile `part`.
fn quantile(buckets: &[u64], part: f64) -> Duration {
    let all: u64 = buckets.iter().sum();
    let wanted = ((all as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    let reaches = |count: &u64| {
        seen += count;
        seen >= wanted
    };
    match buckets.iter().position(reaches) {
        Some(at) => Duration::from_secs_f64(((at + 1) as f64 / STEPS as f64).exp2() / 1e6),
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_about(found: Duration, expected: Duration) -> bool {
        let ratio = found.as_secs_f64() / expected.as_secs_f64();
        (0.999..1.13).contains(&ratio)
    }

    #[test]
    fn quantiles_are_exact_to_an_eighth() {
        let timings = Timings::default();
        assert_eq!(timings.summary(), Summary::default());
        timings.record(Duration::from_micros(100), 98);
        timings.record(Duration::from_millis(7), 2);
        let summary = timings.summary();
        assert!(is_about(summary.p50, Duration::from_micros(100)), "{summary:?}");
        assert!(is_about(summary.p99, Duration::from_millis(7)), "{summary:?}");
        assert_eq!((summary.count, summary.sum), (100, Duration::from_micros(23_800)));
        timings.record(Duration::from_secs(100_000), 1);
        timings.record(Duration::ZERO, 1);
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let timings = Timings::default();
        timings.record(Duration::from_millis(1), 5);
        timings.turn(Duration::from_secs(59));
        timings.turn(Duration::from_secs(60));
        timings.turn(Duration::from_secs(61));
        assert!(is_about(timings.summary().p50, Duration::from_millis(1)));
        timings.turn(Duration::from_secs(120));
        let summary = timings.summary();
        assert_eq!((summary.p50, summary.count), (Duration::ZERO, 5));
    }
}
