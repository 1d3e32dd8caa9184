//! Durations of the turns of one IO thread, for other threads to read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Duration beyond which a turn counts as slow: it has a cause that should be investigated.
const SLOW: Duration = Duration::from_millis(100);

/// Time for which the longest turn is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The turn durations of one IO thread. Only that thread writes them.
#[derive(Debug)]
pub struct Watchdog {
    epoch: Instant,
    /// Start of the present round, in microseconds after `epoch`; 0: the thread waits for the kernel.
    round_since: AtomicU64,
    /// Duration of the longest turn, in microseconds.
    longest: AtomicU64,
    /// End of the longest turn, in microseconds after `epoch`.
    longest_at: AtomicU64,
    slow: AtomicU64,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            round_since: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            longest_at: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        }
    }
}

impl Watchdog {
    /// Notes that a round begins: the thread has something to do.
    pub(super) fn round_begins(&self, now: Instant) {
        self.round_since.store(self.micros(now).max(1), Ordering::Relaxed);
    }

    /// Notes that the round has ended: the thread waits for the kernel again.
    pub(super) fn round_ends(&self) {
        self.round_since.store(0, Ordering::Relaxed);
    }

    /// Records a turn. Returns whether it was slow.
    pub(super) fn turn(&self, start: Instant, end: Instant) -> bool {
        let took = end - start;
        let micros = took.as_micros() as u64;
        if micros > self.longest.load(Ordering::Relaxed)
            || self.micros(end) - self.longest_at.load(Ordering::Relaxed)
                > REMEMBERED.as_micros() as u64
        {
            self.longest.store(micros, Ordering::Relaxed);
            self.longest_at.store(self.micros(end), Ordering::Relaxed);
        }
        let is_slow = took > SLOW;
        if is_slow {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        is_slow
    }

    /// Duration of the present round so far; zero while the thread waits for the kernel.
    pub(super) fn in_round(&self, now: Instant) -> Duration {
        match self.round_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros(self.micros(now).saturating_sub(since)),
        }
    }

    /// Duration of the longest turn in about the last minute, including a turn that has not ended yet.
    pub fn longest(&self) -> Duration {
        let now = Instant::now();
        let age = self.micros(now).saturating_sub(self.longest_at.load(Ordering::Relaxed));
        let ended = if age > REMEMBERED.as_micros() as u64 {
            Duration::ZERO
        } else {
            Duration::from_micros(self.longest.load(Ordering::Relaxed))
        };
        // A round that takes longer than a slow turn is taken for one long turn: one of its turns is probably
        // stuck.
        let round = self.in_round(now);
        if round > SLOW { ended.max(round) } else { ended }
    }

    /// Number of turns that took longer than 100 ms.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_remembered_for_a_minute() {
        let watchdog = Watchdog::default();
        let start = Instant::now();
        let ms = Duration::from_millis;
        assert!(!watchdog.turn(start, start + ms(7)));
        assert!(!watchdog.turn(start + ms(7), start + ms(9)));
        assert_eq!(watchdog.longest(), ms(7));
        assert!(watchdog.turn(start + ms(9), start + ms(400)));
        assert_eq!((watchdog.longest(), watchdog.slow()), (ms(391), 1));
        let later = start + REMEMBERED + ms(1_000);
        assert!(!watchdog.turn(later, later + ms(1)));
        assert_eq!(watchdog.longest(), ms(1));
    }

    #[test]
    fn a_thread_in_a_round_is_seen_to_be() {
        let watchdog = Watchdog::default();
        let start = Instant::now() + Duration::from_millis(1);
        assert_eq!(watchdog.in_round(start), Duration::ZERO);
        watchdog.round_begins(start);
        let long = watchdog.in_round(start + Duration::from_secs(2));
        assert!(long > Duration::from_secs(1), "{long:?}");
        watchdog.round_ends();
        assert_eq!(watchdog.in_round(start), Duration::ZERO);
    }
}
