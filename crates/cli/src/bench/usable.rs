//! `--find-max`: the highest rate that a broker carries.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::bail;

use super::Options;
use super::engine::Engine;
use super::process::Process;
use super::report::{Setup, Traffic};
use super::scenario::Plan;

/// A rate is usable if 99 of 100 messages arrive within this time.
const P99_MICROS_MAX: u64 = 500_000;

/// The answer is so exact, in percent of itself.
const EXACTNESS: u32 = 5;

/// After a rate that was too high a broker has this long to forget it.
const REST: Duration = Duration::from_millis(500);

/// The highest usable rate, and what was measured at it.
///
/// Begins with a closed loop, which tells about what the broker carries, and halves the interval
/// between nothing and twice that.
pub fn find(
    options: &Options,
    plan: &Plan,
    process: Option<Process>,
    address: SocketAddr,
) -> anyhow::Result<(Options, Setup, Traffic)> {
    let measure = |rate| {
        let options = Options { rate, ..options.clone() };
        let mut engine = Engine::new(&options, plan, process)?;
        let setup = engine.connect(address)?;
        let traffic = engine.measure()?;
        anyhow::Ok((options, setup, traffic))
    };
    let (_, _, closed_loop) = measure(None)?;
    let carried = closed_loop.sent_per_s(plan.copies);
    let (mut usable, mut too_high) = (0, carried.saturating_mul(2));
    let mut best = None;
    while too_high - usable > too_high / (100 / EXACTNESS) + 1 {
        let rate = usable + (too_high - usable) / 2;
        let (options, setup, traffic) = measure(Some(rate))?;
        if is_usable(&traffic) {
            usable = rate;
            best = Some((options, setup, traffic));
        } else {
            too_high = rate;
            std::thread::sleep(REST);
        }
    }
    let Some(best) = best else { bail!("the broker carries no rate without loss") };
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
