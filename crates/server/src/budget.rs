//! How long a connection may keep its thread.
//!
//! A turn is made of steps: packets, subscribers, filters. Each is small by itself, whatever a client sends, and
//! between two of them the turn can end. So other clients wait for at most a slice and a step.

use std::time::{Duration, Instant};

/// How long all turns of one round take together, as far as their number allows. Somebody who comes meanwhile waits so
/// long, whether one connection has kept the thread busy or a hundred have.
const ROUND: Duration = Duration::from_millis(10);

/// The shortest turn: below it, changing from one connection to the next costs too much.
const SLICE_MIN: Duration = Duration::from_micros(100);

/// Longer than a process runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Steps between two looks at the clock. A step takes about a microsecond.
const STEPS_UNSEEN: usize = 32;

/// The time of one turn.
#[derive(Clone, Debug)]
pub struct Budget {
    until: Instant,
    /// Steps since the clock was looked at.
    unseen: usize,
    is_spent: bool,
}

impl Budget {
    /// The budget of one of `turns` turns of a round, which begins at `start`.
    pub fn new(start: Instant, turns: usize) -> Self {
        let turns = u32::try_from(turns.max(1)).unwrap_or(u32::MAX);
        let slice = (ROUND / turns).max(SLICE_MIN);
        Self { until: start + slice, unseen: 0, is_spent: false }
    }

    /// Time without end, for who keeps nobody waiting.
    pub fn unbounded() -> Self {
        let now = Instant::now();
        Self { until: now.checked_add(FOREVER).unwrap_or(now), unseen: 0, is_spent: false }
    }

    /// Notes that `steps` steps have been made. True: the turn is to end.
    pub fn spend(&mut self, steps: usize) -> bool {
        self.unseen += steps;
        if self.unseen >= STEPS_UNSEEN {
            self.unseen = 0;
            self.is_spent |= Instant::now() >= self.until;
        }
        self.is_spent
    }

    /// Whether the turn is to end.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_turns_get_short_slices() {
        let start = Instant::now();
        let slice = |turns| Budget::new(start, turns).until - start;
        assert_eq!(slice(0), ROUND);
        assert_eq!(slice(1), ROUND);
        assert_eq!(slice(50), ROUND / 50);
        assert_eq!(slice(1_000_000), SLICE_MIN);
    }

    #[test]
    fn a_budget_is_spent_when_its_time_is_over_and_stays_so() {
        let start = Instant::now();
        let mut later = Budget::new(start + Duration::from_secs(3_600), 1);
        assert!(!later.spend(1_000_000));
        let mut over = Budget::new(start - Duration::from_secs(3_600), 1);
        assert!(!over.spend(STEPS_UNSEEN - 1), "the clock is looked at now and then");
        assert!(over.spend(1));
        assert!(over.is_spent());
    }
}
