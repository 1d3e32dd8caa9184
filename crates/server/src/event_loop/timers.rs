//! Deadlines of the connections of one IO thread.
//!
//! A connection usually has one entry. When it fires, the connection says whether it is really due, or when
//! it is to be looked at again. So a packet that arrives, and moves the deadline, changes nothing here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use barid_core::time::MonoTime;

use barid_engine::ids::ConnectionId;

/// Deadlines, the earliest first.
#[derive(Debug, Default)]
pub struct Timers(BinaryHeap<Reverse<(MonoTime, ConnectionId)>>);

impl Timers {
    /// Adds a deadline for a connection.
    pub fn set(&mut self, at: MonoTime, connection: ConnectionId) {
        self.0.push(Reverse((at, connection)));
    }

    /// Removes and returns a connection whose deadline has come.
    pub fn pop_due(&mut self, now: MonoTime) -> Option<ConnectionId> {
        let Reverse((at, connection)) = *self.0.peek()?;
        (at <= now).then(|| {
            self.0.pop();
            connection
        })
    }

    /// Time until the next deadline; `None` if there is none.
    pub fn idle(&self, now: MonoTime) -> Option<Duration> {
        self.0.peek().map(|Reverse((at, ..))| at.since(now))
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
        timers.set(at(20), id(2));
        timers.set(at(10), id(1));
        assert_eq!(timers.idle(at(4)), Some(Duration::from_millis(6)));
        assert_eq!(timers.pop_due(at(9)), None);
        assert_eq!(timers.pop_due(at(25)), Some(id(1)));
        assert_eq!(timers.pop_due(at(25)), Some(id(2)));
        assert_eq!(timers.pop_due(at(25)), None);
    }
}
