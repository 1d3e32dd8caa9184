//! What entities have done later, by a thread that is not theirs.

use std::fmt;
use std::sync::{Arc, Weak};

use barid_core::commits::Commits;
use barid_core::entity::LockToken;
use barid_core::time::WallTime;
use smallvec::SmallVec;

use super::{Mover, Queue};

/// Looks at entities at their time. Returns at once, whatever locks of entities the caller holds.
pub trait Alarm: Send + Sync + fmt::Debug {
    /// `Queue::wake`, when the clock on the wall shows `at`.
    fn wake(&self, queue: Weak<Queue>, at: WallTime);

    /// `Mover::run`, as soon as possible.
    fn move_on(&self, mover: Weak<Mover>);

    /// `Mover::complete`, when `commits` are durable.
    fn complete(&self, commits: Commits, mover: Arc<Mover>, done: SmallVec<[LockToken; 8]>);
}
