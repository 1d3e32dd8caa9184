//! By how much the wall clock of another broker is ahead of that of this one.

/// Number of heartbeats after which earlier ones begin to be forgotten.
const WINDOW: u32 = 20;

/// Maximum difference of two clocks that is taken for one, in milliseconds. A clock that is further ahead is wrong.
const AHEAD_MAX: i64 = 60_000;

/// The difference of the two clocks, as the heartbeats of the last seconds tell it. A heartbeat tells less by the time that it
/// was under way, so the greatest difference is the best.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The greatest difference in this window, and in the one before it, in milliseconds.
    windows: [Option<i64>; 2],
    /// Number of heartbeats in this window.
    heard: u32,
}

impl Ahead {
    /// A heartbeat tells a difference, in milliseconds.
    pub(super) fn note(&mut self, millis: i64) {
        if self.heard == WINDOW {
            *self = Self { windows: [None, self.windows[0]], heard: 0 };
        }
        self.heard += 1;
        if millis <= AHEAD_MAX {
            self.windows[0] = self.windows[0].max(Some(millis));
        }
    }

    /// By how many milliseconds the other clock is ahead; 0: it is not, or nothing is known.
    pub(super) fn millis(&self) -> u64 {
        let [now, before] = self.windows;
        now.max(before).unwrap_or_default().max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_heartbeat_of_the_last_seconds_counts() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.millis(), 0);
        for millis in [-5, 90, 40, AHEAD_MAX + 1, i64::MIN] {
            ahead.note(millis);
        }
        assert_eq!(ahead.millis(), 90);
        for _ in 0..WINDOW {
            ahead.note(50);
        }
        assert_eq!(ahead.millis(), 90);
        for _ in 0..WINDOW {
            ahead.note(50);
        }
        assert_eq!(ahead.millis(), 50);
    }
}
