//! Replicas of another broker: the result of the last comparison, and counts.

use barid_core::time::MonoTime;
use barid_peers::{PARTS, Parts};

use crate::sync::Mutex;

/// The result of the last comparison with one other broker, and counts.
#[derive(Debug, Default)]
pub struct Replicas {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    counts: ReplicaCounts,
    /// For each part the wall time of the last comparison in which it was the same here and there, in microseconds since
    /// the Unix epoch; 0: there was none.
    equal: Box<[u64]>,
}

impl Default for State {
    fn default() -> Self {
        Self { counts: ReplicaCounts::default(), equal: vec![0; PARTS].into() }
    }
}

/// Counts of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Number of parts that differed when they were last compared.
    pub differing: usize,
    /// When they were last compared; `None`: never.
    pub compared_at: Option<MonoTime>,
    /// Objects that were sent to the broker since the start.
    pub sent: u64,
    /// Objects that came from it and were later than the own ones.
    pub received: u64,
    /// Whether it has once sent all objects of which it had a later change.
    pub has_told: bool,
}

impl Replicas {
    /// The replicas have been compared. `taken_at` is the wall time at which the own digests were taken, in microseconds
    /// since the Unix epoch.
    pub fn compared(&self, now: MonoTime, taken_at: u64, differing: &Parts) {
        let mut state = self.state.lock();
        state.counts.differing = differing.len();
        state.counts.compared_at = Some(now);
        for (part, equal) in state.equal.iter_mut().enumerate() {
            if !differing.contains(part) {
                *equal = taken_at;
            }
        }
    }

    /// An object was sent.
    pub fn sent(&self) {
        self.state.lock().counts.sent += 1;
    }

    /// An object has come that was later than the own one.
    pub fn received(&self) {
        self.state.lock().counts.received += 1;
    }

    /// The broker has sent all objects of which it had a later change.
    pub fn told(&self) {
        self.state.lock().counts.has_told = true;
    }

    /// The counts.
    pub fn counts(&self) -> ReplicaCounts {
        self.state.lock().counts
    }

    /// For each part the time of the last comparison in which it was the same, in microseconds since the Unix epoch; 0: there
    /// was none.
    pub(super) fn equal_since(&self) -> Box<[u64]> {
        self.state.lock().equal.clone()
    }
}
