//! Things ordered by the time at which each is due.

use std::collections::BTreeSet;

use crate::time::WallTime;

/// The latest possible time: never reached.
pub(super) const NEVER: WallTime = WallTime::from_millis(u64::MAX);

/// Things with the time at which each is due, soonest first.
#[derive(Debug)]
pub(super) struct Due<T>(BTreeSet<(WallTime, T)>);

impl<T> Default for Due<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord> Due<T> {
    pub fn insert(&mut self, at: WallTime, thing: T) {
        self.0.insert((at, thing));
    }

    /// Removes a thing. Returns false if it was not there.
    pub fn remove(&mut self, at: WallTime, thing: T) -> bool {
        self.0.remove(&(at, thing))
    }

    /// Time at which the first thing is due.
    pub fn next(&self) -> Option<WallTime> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the first thing if it is due.
    pub fn take(&mut self, now: WallTime) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, thing)| thing)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
