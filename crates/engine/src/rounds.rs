//! The rounds of IO threads.
//!
//! In a round, a thread gives turns to its connections. A thread that removes something on which a turn may
//! rely waits until all rounds that began before have ended.

use crate::sync::{Mutex, MutexGuard};

/// The rounds of all IO threads. A thread in a round holds a lock of its own, which no other thread holds for
/// long.
pub struct Rounds(Box<[Round]>);

/// A round in progress. It ends when this is dropped.
pub type InRound<'a> = MutexGuard<'a, ()>;

/// The lock of one thread, in a cache line of its own, because the thread takes it in every round.
#[derive(Default)]
#[repr(align(64))]
struct Round(Mutex<()>);

impl Rounds {
    /// Creates the rounds of `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Round::default()).collect())
    }

    /// Begins a round of a thread. The round ends when the result is dropped.
    pub fn begin(&self, thread: usize) -> InRound<'_> {
        self.0[thread].0.lock()
    }

    /// Waits until each thread has ended its current round. Must not be called in a round: that would wait
    /// for itself.
    pub fn wait(&self) {
        for round in &self.0 {
            drop(round.0.lock());
        }
    }
}
