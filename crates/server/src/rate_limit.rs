//! Rate limit for log lines that any client can cause. Each line carries the number of events since the
//! previous one.

use std::time::{Duration, Instant};

/// Minimum time between two log lines about one kind of event.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which events of one kind are logged.
#[derive(Debug, Default)]
pub struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Counts an event. Returns the number of events since the last log line, this one included, if the next
    /// line is due.
    pub fn happened(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < INTERVAL) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_rest_together() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.happened(start), Some(1));
        assert_eq!(seldom.happened(start), None);
        assert_eq!(seldom.happened(start + INTERVAL / 2), None);
        assert_eq!(seldom.happened(start + INTERVAL), Some(3));
        assert_eq!(seldom.happened(start + INTERVAL), None);
    }
}
