//! Times in which a broker publishes nothing, while a slot is moved: no message may be on its way to the sessions of the
//! slot when they change their broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_core::time::MonoTime;

use crate::sync::Mutex;

/// The holds of a broker. Several brokers may want one at the same time.
#[derive(Clone, Default)]
pub(super) struct Holds(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The time at which the last hold ends, in milliseconds; 0: there is none.
    until: AtomicU64,
    /// The number of each hold, and when it ends.
    all: Mutex<Vec<(u64, MonoTime)>>,
    begun: AtomicU64,
}

/// A time in which nothing is published. Ends when this is dropped, if it has not ended before.
pub struct Hold {
    holds: Holds,
    number: u64,
}

impl Holds {
    pub fn begin(&self, until: MonoTime) -> Hold {
        let number = self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.change(|all| all.push((number, until)));
        Hold { holds: self.clone(), number }
    }

    #[inline]
    pub fn are_in_force(&self, now: MonoTime) -> bool {
        now.as_millis() < self.0.until.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(u64, MonoTime)>)) {
        let mut all = self.0.all.lock();
        change(&mut all);
        let last = all.iter().map(|(_, until)| until.as_millis()).max();
        self.0.until.store(last.unwrap_or(0), Ordering::SeqCst);
    }
}

impl Hold {
    /// Lets the hold end later.
    pub fn extend(&self, until: MonoTime) {
        self.holds.change(|all| {
            all.iter_mut().filter(|(number, _)| *number == self.number).for_each(|it| it.1 = until);
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.change(|all| all.retain(|(number, _)| *number != self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hold_to_end_counts() {
        let (holds, at) = (Holds::default(), MonoTime::from_millis);
        let first = holds.begin(at(10));
        let second = holds.begin(at(20));
        assert!(holds.are_in_force(at(19)) && !holds.are_in_force(at(20)));
        drop(second);
        assert!(holds.are_in_force(at(9)) && !holds.are_in_force(at(10)));
        first.extend(at(30));
        assert!(holds.are_in_force(at(29)));
        drop(first);
        assert!(!holds.are_in_force(at(0)));
    }
}
