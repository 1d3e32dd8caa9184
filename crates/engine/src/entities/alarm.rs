//! Work that entities hand over to another thread.

use std::fmt;
use std::sync::{Arc, Weak};

use barid_core::commits::Commits;
use barid_core::entity::LockToken;
use barid_core::time::WallTime;
use smallvec::SmallVec;

use super::{Mover, Queue};

/// Schedules work on entities. The methods return at once, and may be called with any locks of entities held.
pub trait Alarm: Send + Sync + fmt::Debug {
    /// The time that the wall clock shows.
    fn wall(&self) -> WallTime;

    /// Calls [`Queue::wake`] when the wall clock shows `at`.
    fn wake(&self, queue: Weak<Queue>, at: WallTime);

    /// Calls [`Mover::run`] as soon as possible.
    fn move_on(&self, mover: Weak<Mover>);

    /// Calls [`Mover::run`] when a closed shard is open again.
    fn move_when_open(&self, mover: Weak<Mover>);

    /// Calls [`Mover::complete`] with `done` when `commits` are durable.
    fn complete(&self, commits: Commits, mover: Arc<Mover>, done: SmallVec<[LockToken; 8]>);
}
