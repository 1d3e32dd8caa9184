//! First-come, first-served queues.

use std::collections::BTreeMap;

/// Things that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: BTreeMap<u64, T>,
    last: u64,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), last: 0 }
    }
}

impl<T> Turns<T> {
    /// Joins at the end of the queue. Returns the turn.
    pub fn join(&mut self, one: T) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, one);
        self.last
    }

    /// Joins again with an earlier turn, in its old place.
    pub fn rejoin(&mut self, turn: u64, one: T) {
        self.waiting.insert(turn, one);
    }

    /// Leaves the queue.
    pub fn leave(&mut self, turn: u64) -> Option<T> {
        self.waiting.remove(&turn)
    }

    /// Takes the one that has waited longest.
    pub fn take_first(&mut self) -> Option<(u64, T)> {
        self.waiting.pop_first()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
