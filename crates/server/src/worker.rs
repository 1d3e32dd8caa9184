//! What a thread that handles messages carries with it.

use std::sync::Arc;

use barid_core::time::Timestamp;

use crate::broker::Shared;

/// The identity of a thread that handles messages, and its idea of the present.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its number: which [`Counters`](crate::metrics::Counters) of a tenant are its own.
    pub id: usize,
    /// The time, as of the present turn of the thread.
    pub now: Timestamp,
    /// What all threads share.
    pub shared: Arc<Shared>,
}

impl Worker {
    /// What the operating system's clock shows: the time of entities, whose clients compare it with their own.
    pub fn wall(&self) -> Timestamp {
        self.shared.clock.wall()
    }
}
