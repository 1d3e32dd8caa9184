//! `--find-max`: the highest rate that a broker can carry.

use std::time::Duration;

use anyhow::Context as _;

use super::Options;
use super::engine::Engine;
use super::process::Process;
use super::report::{Setup, Traffic};
use super::scenario::Plan;
use super::target::Target;

/// Maximum p99 of a usable rate: 99 of 100 messages arrive within this time.
const P99_MICROS_MAX: u64 = 500_000;

/// Accuracy of the result, in percent.
const EXACTNESS: u32 = 5;

/// Pause after a rate that was too high, so that the broker can recover.
const REST: Duration = Duration::from_millis(500);

/// Finds the highest usable rate, and returns it with the measurement at that rate.
///
/// Begins with a closed loop, which shows approximately what the broker can carry. Then halves the
/// interval between 0 and twice that rate.
pub fn find(
    options: &Options,
    plan: &Plan,
    process: Option<&Process>,
    target: &Target,
) -> anyhow::Result<(Options, Setup, Traffic)> {
    let measure = |rate| {
        let options = Options { rate, ..options.clone() };
        let mut engine = Engine::new(&options, plan, process.cloned())?;
        let setup = engine.connect(target)?;
        let traffic = engine.measure()?;
        anyhow::Ok((options, setup, traffic))
    };
    let (_, _, closed_loop) = measure(None)?;
    let carried = closed_loop.sent_per_s(plan.copies);
    let best = highest(carried.saturating_mul(2), |rate| {
        let measured = measure(Some(rate))?;
        let is_usable = is_usable(&measured.2);
        if !is_usable {
            std::thread::sleep(REST);
        }
        Ok(is_usable.then_some(measured))
    })?;
    best.context("no rate without loss and with a p99 below 500 ms was found")
}

/// Halves the interval between 0 and `too_high`. Returns the result of `measure` for the highest
/// rate for which it had one.
fn highest<T>(
    mut too_high: u32,
    mut measure: impl FnMut(u32) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let (mut usable, mut best) = (0, None);
    while too_high - usable > too_high / (100 / EXACTNESS) + 1 {
        let rate = usable + (too_high - usable) / 2;
        if let Some(measured) = measure(rate)? {
            (usable, best) = (rate, Some(measured));
        } else {
            too_high = rate;
        }
    }
    Ok(best)
}

fn is_usable(traffic: &Traffic) -> bool {
    let p99 = traffic.latencies.value_at_quantile(0.99);
    traffic.lost == 0
        && traffic.dropped == 0
        && !traffic.latencies.is_empty()
        && p99 < P99_MICROS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    #[test]
    fn the_highest_rate_is_found_within_five_percent() {
        for limit in [999, 10_000, 123_456] {
            let mut asked = 0;
            let found = highest(200_000, |rate| {
                asked += 1;
                Ok((rate <= limit).then_some(rate))
            });
            let found = found.unwrap().unwrap();
            assert!(found <= limit && found >= limit - limit / 20 - 1, "{found} for {limit}");
            assert!(asked <= 13, "{asked} measurements for {limit}");
        }
        assert_eq!(highest(200_000, |_| Ok(None::<u32>)).unwrap(), None);
    }

    #[test]
    fn loss_lateness_and_closed_connections_make_a_rate_unusable() {
        let traffic = |lost, dropped, latency| {
            let mut latencies = Histogram::new(3).unwrap();
            latencies.record(latency).unwrap();
            Traffic {
                elapsed: Duration::from_secs(1),
                delivered: 1,
                sent: 1,
                lost,
                surplus: 0,
                unsent: 0,
                dropped,
                latencies,
                before: None,
                after: None,
                generator_cpu: None,
            }
        };
        assert!(is_usable(&traffic(0, 0, 400_000)));
        assert!(!is_usable(&traffic(1, 0, 400_000)));
        assert!(!is_usable(&traffic(0, 1, 400_000)));
        assert!(!is_usable(&traffic(0, 0, 600_000)));
    }
}
