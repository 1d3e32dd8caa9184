//! The rounds of IO threads.
//!
//! In a round a thread gives turns to its connections. Who takes something away that a turn may be relying on waits until no
//! thread is in a round that began before.

use crate::sync::{Mutex, MutexGuard};

/// The rounds of all IO threads. A thread that is in one holds a lock of its own, which nobody else holds for long.
pub struct Rounds(Box<[Round]>);

/// A thread in a round.
pub type InRound<'a> = MutexGuard<'a, ()>;

/// In a cache line of its own, as its thread locks it all the time.
#[derive(Default)]
#[repr(align(64))]
struct Round(Mutex<()>);

impl Rounds {
    /// Those of so many threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Round::default()).collect())
    }

    /// A thread begins a round, which ends when the answer is dropped.
    pub fn begin(&self, thread: usize) -> InRound<'_> {
        self.0[thread].0.lock()
    }

    /// Waits until each thread has ended the round in which it is now. Not to be called in a round.
    pub fn wait(&self) {
        for round in &self.0 {
            drop(round.0.lock());
        }
    }
}
