//! Deadlines of the connections of one IO thread.
//!
//! A connection has one entry at most. When it fires, the connection says whether it is really due, or when
//! it is to be looked at again. So a packet that arrives, and moves the deadline, changes nothing here. A
//! deadline that comes sooner, such as the end of a wait for a quota, replaces the entry.

use std::collections::BTreeSet;
use std::time::Duration;

use barid_core::time::MonoTime;

use barid_engine::ids::ConnectionId;

/// No deadline.
pub const NEVER: MonoTime = MonoTime::from_millis(u64::MAX);

/// Deadlines, the earliest first.
#[derive(Debug, Default)]
pub struct Timers(BTreeSet<(MonoTime, ConnectionId)>);

impl Timers {
    /// Changes the deadline of a connection. `before` is the present one; [`NEVER`] is none.
    pub fn set(&mut self, connection: ConnectionId, before: MonoTime, at: MonoTime) {
        if before != NEVER {
            self.0.remove(&(before, connection));
        }
        if at != NEVER {
            self.0.insert((at, connection));
        }
    }

    /// Removes and returns a connection whose deadline has come.
    pub fn pop_due(&mut self, now: MonoTime) -> Option<ConnectionId> {
        let (at, _) = self.0.first()?;
        if *at > now {
            return None;
        }
        self.0.pop_first().map(|(_, connection)| connection)
    }

    /// Time until the next deadline; `None` if there is none.
    pub fn idle(&self, now: MonoTime) -> Option<Duration> {
        self.0.first().map(|(at, _)| at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_deadline_comes_first_and_not_before_its_time() {
        let at = MonoTime::from_millis;
        let id = ConnectionId;
        let mut timers = Timers::default();
        timers.set(id(2), NEVER, at(20));
        timers.set(id(1), NEVER, at(10));
        assert_eq!(timers.idle(at(4)), Some(Duration::from_millis(6)));
        assert_eq!(timers.pop_due(at(9)), None);
        assert_eq!(timers.pop_due(at(25)), Some(id(1)));
        assert_eq!(timers.pop_due(at(25)), Some(id(2)));
        assert_eq!(timers.pop_due(at(25)), None);
    }

    #[test]
    fn a_connection_has_one_entry() {
        let at = MonoTime::from_millis;
        let id = ConnectionId;
        let mut timers = Timers::default();
        timers.set(id(1), NEVER, at(90_000));
        timers.set(id(2), NEVER, at(90_000));
        for millis in (20..2_000).step_by(20) {
            timers.set(id(1), at(90_000), at(millis));
            assert_eq!(timers.pop_due(at(millis)), Some(id(1)));
            timers.set(id(1), NEVER, at(90_000));
        }
        assert_eq!(timers.0.len(), 2);
        timers.set(id(1), at(90_000), NEVER);
        assert_eq!(timers.pop_due(NEVER), Some(id(2)));
        assert_eq!(timers.pop_due(NEVER), None);
    }
}
