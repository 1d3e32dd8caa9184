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
    all: Mutex<Vec<Held>>,
    begun: AtomicU64,
}

/// A hold that is in force.
struct Held {
    number: u64,
    slot: u16,
    until: MonoTime,
}

/// A time in which nothing is published. Ends when this is dropped, if it has not ended before.
pub struct Hold {
    holds: Holds,
    number: u64,
}

impl Holds {
    pub fn begin(&self, slot: u16, until: MonoTime) -> Hold {
        let number = self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.change(|all| all.push(Held { number, slot, until }));
        Hold { holds: self.clone(), number }
    }

    #[inline]
    pub fn are_in_force(&self, now: MonoTime) -> bool {
        now.as_millis() < self.0.until.load(Ordering::SeqCst)
    }

    /// Whether one of them is in force for the move of this slot.
    pub fn are_for(&self, slot: u16, now: MonoTime) -> bool {
        self.are_in_force(now)
            && self.0.all.lock().iter().any(|held| held.slot == slot && now < held.until)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Held>)) {
        let mut all = self.0.all.lock();
        change(&mut all);
        let last = all.iter().map(|held| held.until.as_millis()).max();
        self.0.until.store(last.unwrap_or(0), Ordering::SeqCst);
    }
}

impl Hold {
    /// Lets the hold end later, unless it has ended. Returns whether it is in force.
    #[must_use]
    pub fn extend(&self, now: MonoTime, until: MonoTime) -> bool {
        let mut is_in_force = false;
        self.holds.change(|all| {
            let own = all.iter_mut().find(|held| held.number == self.number && now < held.until);
            if let Some(held) = own {
                held.until = until.max(held.until);
                is_in_force = true;
            }
        });
        is_in_force
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.change(|all| all.retain(|held| held.number != self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hold_to_end_counts() {
        let (holds, at) = (Holds::default(), MonoTime::from_millis);
        let first = holds.begin(1, at(10));
        let second = holds.begin(2, at(20));
        assert!(holds.are_in_force(at(19)) && !holds.are_in_force(at(20)));
        assert!(holds.are_for(2, at(19)) && !holds.are_for(2, at(20)) && !holds.are_for(1, at(19)));
        drop(second);
        assert!(holds.are_in_force(at(9)) && !holds.are_in_force(at(10)));
        assert!(first.extend(at(9), at(30)));
        assert!(holds.are_in_force(at(29)));
        assert!(!first.extend(at(30), at(40)), "another hold in force does not help");
        drop(first);
        assert!(!holds.are_in_force(at(0)));
    }
}
