//! How much is in an entity.

use std::sync::Arc;

use crate::time::WallTime;

/// How much is in an entity. Each message is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that wait for a receiver.
    pub active: usize,
    /// Active messages that a receiver has.
    pub locked: usize,
    /// Deferred messages, locked or not.
    pub deferred: usize,
    /// Messages that wait for their time.
    pub scheduled: usize,
    /// All messages of the dead-letter sub-queue.
    pub dead_lettered: usize,
    /// All messages of the transfer dead-letter sub-queue.
    pub transfer_dead_lettered: usize,
    /// Sessions that have a message, a state, or a lock.
    pub sessions: usize,
    /// Bytes of all messages and states.
    pub bytes: usize,
    /// Bytes that count against the limit: these, and what is kept with each message, session and state.
    pub footprint: usize,
    /// When the first message came, dead letters apart.
    pub oldest: Option<WallTime>,
}

/// How one session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetails {
    /// Its id.
    pub id: Arc<str>,
    /// Messages that wait for a receiver.
    pub active: usize,
    /// Messages that its receiver has.
    pub locked: usize,
    /// Messages that are deferred or scheduled.
    pub set_aside: usize,
    /// When its lock ends, if it is locked.
    pub locked_until: Option<WallTime>,
    /// Bytes of its state, if it has one.
    pub state_size: Option<usize>,
    /// When its state was set last.
    pub state_updated_at: Option<WallTime>,
}
