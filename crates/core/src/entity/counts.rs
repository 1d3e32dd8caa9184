//! Counts of an entity's contents.

use std::sync::Arc;

use crate::time::WallTime;

/// The contents of an entity, in numbers. Each message is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that wait for a receiver.
    pub active: usize,
    /// Active messages that are locked by a receiver.
    pub locked: usize,
    /// Deferred messages, locked or not.
    pub deferred: usize,
    /// Messages that wait for their scheduled time.
    pub scheduled: usize,
    /// All messages of the dead-letter sub-queue.
    pub dead_lettered: usize,
    /// All messages of the transfer dead-letter sub-queue.
    pub transfer_dead_lettered: usize,
    /// Sessions that have a message, a state, or a lock.
    pub sessions: usize,
    /// Bytes of all messages and states.
    pub bytes: usize,
    /// Bytes that count against the limit: the above, and the overhead of each message, session and state.
    pub footprint: usize,
    /// Time at which the first message of the main part was enqueued.
    pub oldest: Option<WallTime>,
}

/// The contents of one session, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetails {
    /// The id of the session.
    pub id: Arc<str>,
    /// Messages that wait for a receiver.
    pub active: usize,
    /// Messages that its receiver has locked.
    pub locked: usize,
    /// Messages that are deferred or scheduled.
    pub set_aside: usize,
    /// Time at which the lock on the session ends, if it is locked.
    pub locked_until: Option<WallTime>,
    /// Size of its state in bytes, if it has one.
    pub state_size: Option<usize>,
    /// Time at which its state was set last.
    pub state_updated_at: Option<WallTime>,
}
