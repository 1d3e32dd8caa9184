//! What other brokers should have in common with this one and have not: settings, and the time. The log tells when that changes.

use std::collections::BTreeMap;

use barid_peers::{Members, State};
use parking_lot::Mutex;
use tracing::{info, warn};

/// Difference of the clocks of two brokers, in milliseconds, beyond which operators are told of it. The clocks decide to which
/// of two brokers a client has connected last.
pub const CLOCK_SKEW: u64 = 500;

/// Number of looks in a row that must agree: a heartbeat that was under way for long looks like a clock that is behind.
const LOOKS: u32 = 20;

/// The differences of which the log has told, by the name of the other broker.
#[derive(Debug, Default)]
pub struct Differences(Mutex<BTreeMap<String, Told>>);

#[derive(Debug, Default)]
struct Told {
    settings: Vec<&'static str>,
    is_skewed: bool,
    /// Number of looks in a row that found the opposite of `is_skewed`.
    opposite: u32,
}

impl Differences {
    /// Looks at the other brokers. To be called with every heartbeat.
    pub fn look(&self, members: &Members) {
        let mut told = self.0.lock();
        told.retain(|name, _| members.get(name).is_some_and(|member| member.state.is_in_cluster()));
        for member in members.others().filter(|member| member.state == State::Up) {
            let broker = member.identity.name.as_str();
            let told = told.entry(broker.to_owned()).or_default();
            told.tell_settings(broker, members.other_settings(member));
            told.tell_clock(broker, member.ahead);
        }
    }
}

impl Told {
    fn tell_settings(&mut self, broker: &str, settings: Vec<&'static str>) {
        if settings == self.settings {
            return;
        }
        if settings.is_empty() {
            info!(broker, "a broker of the cluster has the same settings as this one now");
        } else {
            warn!(
                broker,
                settings = settings.join(", "),
                "a broker of the cluster has other settings than this one: what a client may do depends on the broker that it \
                 reaches"
            );
        }
        self.settings = settings;
    }

    fn tell_clock(&mut self, broker: &str, ahead: i64) {
        let is_skewed = ahead.unsigned_abs() > CLOCK_SKEW;
        self.opposite = if is_skewed == self.is_skewed { 0 } else { self.opposite + 1 };
        if self.opposite < LOOKS {
            return;
        }
        (self.is_skewed, self.opposite) = (is_skewed, 0);
        if is_skewed {
            warn!(
                broker,
                ahead_ms = ahead,
                "the clock of a broker of the cluster is not that of this one: synchronise both, as with NTP"
            );
        } else {
            info!(
                broker,
                "the clock of a broker of the cluster agrees with that of this one again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_told_of_when_it_stays_wrong() {
        let mut told = Told::default();
        let mut look = |ahead: i64, times: u32| {
            for _ in 0..times {
                told.tell_clock("b", ahead);
            }
            told.is_skewed
        };
        assert!(!look(-5_000, LOOKS - 1), "a heartbeat may have been under way for long");
        assert!(!look(10, 1) && !look(900, LOOKS - 1));
        assert!(look(900, 1) && look(0, LOOKS - 1));
        assert!(!look(0, 1));
    }
}
