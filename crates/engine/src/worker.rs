//! What a thread that handles messages is, for those that it works for.

use barid_core::time::MonoTime;

/// The identity of a thread that handles messages, and its idea of the present.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Its number: which [`Counters`](crate::metrics::Counters) of a tenant are its own.
    pub id: usize,
    /// The time, as of the present turn of the thread.
    pub now: MonoTime,
}
