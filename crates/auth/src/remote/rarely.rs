//! Lines of the log about events that may be frequent.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two lines about the same kind of event.
const PAUSE: Duration = Duration::from_secs(10);

/// Passes the first event, and then one in [`PAUSE`], with the number of events since the one before.
#[derive(Debug, Default)]
pub(crate) struct Rarely(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    events: u64,
}

impl Rarely {
    /// Notes an event. Returns the number of events since the last one that passed, with this one, if this one
    /// passes.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.events += 1;
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_between_two_lines_are_counted() {
        let (rarely, start) = (Rarely::default(), Instant::now());
        assert_eq!(rarely.pass_at(start), Some(1));
        assert_eq!(rarely.pass_at(start), None);
        assert_eq!(rarely.pass_at(start + PAUSE - Duration::from_millis(1)), None);
        assert_eq!(rarely.pass_at(start + PAUSE), Some(3));
    }
}
