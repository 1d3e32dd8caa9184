//! The time for which nobody has used an entity. `AutoDeleteOnIdle` deletes it after some of that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barid_core::time::{MonoTime, WallTime};

use super::queue::Queue;
use super::registry::Node;

/// The uses of an entity, which are noted with the accuracy of one sweep. They are forgotten when the broker stops.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// Whether the entity was used since the last sweep.
    is_used: AtomicBool,
    /// Time of the last use, in milliseconds of wall time; 0: it was not used.
    used_at: AtomicU64,
    /// Time since which the entity is idle, in milliseconds of the monotonic clock, and one more; 0: no sweep has seen
    /// it. A wall clock that is set forward must not delete anything.
    since: AtomicU64,
}

impl Idleness {
    /// Notes a use.
    pub(super) fn mark(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Whether the entity was used since the last sweep.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Notes the time of the uses since the last sweep. `is_held`: something waits in the entity or at it, so it is
    /// not idle.
    pub(super) fn sweep(&self, is_held: bool, now: MonoTime, wall: WallTime) {
        let order = Ordering::Relaxed;
        let is_used = self.is_used.swap(false, order);
        if is_used {
            self.used_at.store(wall.as_millis(), order);
        }
        if is_used || is_held || self.since.load(order) == 0 {
            self.since.store(now.as_millis() + 1, order);
        }
    }

    /// Time of the last use; `None`: it was not used since the broker has started.
    pub(super) fn used_at(&self) -> Option<WallTime> {
        let at = self.used_at.load(Ordering::Relaxed);
        (at > 0).then(|| WallTime::from_millis(at))
    }

    /// Time since which the entity is idle; `None`: no sweep has seen it.
    pub(super) fn since(&self) -> Option<MonoTime> {
        self.since.load(Ordering::Relaxed).checked_sub(1).map(MonoTime::from_millis)
    }
}

/// Whether nobody has used an entity for the duration after which it is deleted. A topic is used when one of its
/// subscriptions is.
pub(super) fn is_idle_too_long(node: &Node, now: MonoTime) -> bool {
    let limit = node.entity().configured().properties.auto_delete_on_idle.limited();
    let Some(limit) = limit else { return false };
    let is_idle = |queue: &Queue| queue.idle_since().is_some_and(|since| since.after(limit) <= now);
    match node {
        Node::Queue(queue) => is_idle(queue),
        Node::Topic(topic) => {
            is_idle(topic.held()) && topic.subscriptions().iter().all(|queue| is_idle(queue))
        }
    }
}
