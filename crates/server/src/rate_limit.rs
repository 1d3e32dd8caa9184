//! Log lines that a stranger can cause, told now and then, with how often it happened meanwhile.

use std::time::{Duration, Instant};

/// Between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// When one kind of event is told.
#[derive(Debug, Default)]
pub struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// It has happened once more. How often it has since it was told last, if it is time to tell it.
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
