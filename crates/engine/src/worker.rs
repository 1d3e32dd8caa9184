//! The identity of a thread that handles messages.

use barid_core::time::MonoTime;

/// The identity of a thread that handles messages, and its current time.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Number of the thread. It selects the thread's [`Counters`](crate::metrics::Counters) of a tenant.
    pub id: usize,
    /// Time of the thread's current turn.
    pub now: MonoTime,
}
