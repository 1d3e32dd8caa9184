//! What is to happen when.

use std::collections::BTreeSet;

use crate::time::WallTime;

/// Later than everything.
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

    /// False: it was not there.
    pub fn remove(&mut self, at: WallTime, thing: T) -> bool {
        self.0.remove(&(at, thing))
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<WallTime> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the first one, if it is due.
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
