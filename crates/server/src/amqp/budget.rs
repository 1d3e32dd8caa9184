//! How much one connection may do before others have their turn.

use std::time::{Duration, Instant};

/// How long a turn lasts, but for what was begun before its end. Others that share the thread wait so long for
/// each connection that has much to do.
const TURN: Duration = Duration::from_millis(1);

/// Steps between two looks at the clock, each of about a microsecond: a look costs a few hundredths of one.
const UNCHECKED: u32 = 32;

/// What is left of a turn.
#[derive(Debug)]
pub struct Budget {
    ends: Instant,
    /// Steps to the next look at the clock.
    unchecked: u32,
    is_spent: bool,
}

impl Budget {
    /// A turn that begins.
    pub fn new() -> Self {
        Self { ends: Instant::now() + TURN, unchecked: UNCHECKED, is_spent: false }
    }

    /// So many steps have been done, each of about a microsecond.
    pub fn spend(&mut self, steps: usize) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.unchecked = self.unchecked.saturating_sub(steps);
        if self.unchecked == 0 {
            self.unchecked = UNCHECKED;
            self.is_spent |= Instant::now() >= self.ends;
        }
    }

    /// Whether the turn is over.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends() {
        let mut budget = Budget::new();
        assert!(!budget.is_spent());
        std::thread::sleep(TURN);
        budget.spend(1);
        assert!(!budget.is_spent(), "nobody has looked at the clock");
        budget.spend(100);
        assert!(budget.is_spent());
        assert!(!Budget::new().is_spent());
    }
}
