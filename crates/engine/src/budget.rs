//! How long a connection may keep its thread.
//!
//! A turn consists of steps: packets, subscribers, filters. Each step is short, whatever a client sends, and
//! the turn can end after any step. So other clients wait for at most a slice and a step.

use std::time::{Duration, Instant};

use crate::clock::Clock;

/// Duration of all turns of one round together, unless there are so many that [`SLICE_MIN`] is reached. A
/// client whose event arrives during a round waits this long, whether one connection has kept the thread busy
/// or a hundred have.
const ROUND: Duration = Duration::from_millis(10);

/// Minimum duration of a turn. With shorter turns, changing from one connection to the next would cost too
/// much.
const SLICE_MIN: Duration = Duration::from_micros(100);

/// Number of steps between two reads of the clock. A step takes about a microsecond.
const STEPS_UNSEEN: usize = 32;

/// The time budget of one turn.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The clock, and the end of the turn. `None`: the budget is never spent.
    until: Option<(Clock, Instant)>,
    /// Number of steps since the last read of the clock.
    unseen: usize,
    is_spent: bool,
}

impl Budget {
    /// Creates the budget of one of `turns` turns in a round that begins at `start`.
    pub fn new(clock: Clock, start: Instant, turns: usize) -> Self {
        let turns = u32::try_from(turns.max(1)).unwrap_or(u32::MAX);
        let slice = (ROUND / turns).max(SLICE_MIN);
        Self { until: Some((clock, start + slice)), unseen: 0, is_spent: false }
    }

    /// Creates the budget of the only turn in a round that begins now.
    pub(crate) fn from_now(clock: Clock) -> Self {
        Self::new(clock, clock.instant(), 1)
    }

    /// Creates a budget that is never spent, for work that keeps no client waiting.
    pub fn unbounded() -> Self {
        Self { until: None, unseen: 0, is_spent: false }
    }

    /// Counts `steps` steps. Returns whether the turn must end.
    pub fn spend(&mut self, steps: usize) -> bool {
        self.unseen += steps;
        if self.unseen >= STEPS_UNSEEN {
            self.unseen = 0;
            self.is_spent |= self.until.is_some_and(|(clock, until)| clock.instant() >= until);
        }
        self.is_spent
    }

    /// Whether the turn must end.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::stopped;

    #[test]
    fn many_turns_get_short_slices() {
        let start = stopped().instant();
        let slice = |turns| Budget::new(stopped(), start, turns).until.unwrap().1 - start;
        assert_eq!(slice(0), ROUND);
        assert_eq!(slice(1), ROUND);
        assert_eq!(slice(50), ROUND / 50);
        assert_eq!(slice(1_000_000), SLICE_MIN);
    }

    #[test]
    fn a_budget_is_spent_when_its_time_is_over_and_stays_so() {
        let now = stopped().instant();
        assert!(!Budget::unbounded().spend(1_000_000));
        assert!(!Budget::new(stopped(), now, 1).spend(1_000_000));
        let mut over = Budget::new(stopped(), now - ROUND, 1);
        assert!(!over.spend(STEPS_UNSEEN - 1), "the clock is looked at now and then");
        assert!(over.spend(1));
        assert!(over.is_spent());
    }
}
