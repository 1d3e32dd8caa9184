//! The lock of an outlet, and the books that are kept of what waits in it.

use std::sync::atomic::Ordering;

use barid_core::queue::Overflow;

use super::Session;
use super::outlet::{Outlet, RoomWaiters};
use crate::progress::Waiter;
use crate::sync::MutexGuard;

/// What of an outlet counts for its tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Load {
    messages: usize,
    bytes: usize,
    in_memory: usize,
}

impl Load {
    fn of(outlet: &Outlet) -> Self {
        let queue = outlet.outbound.queue();
        // What is kept until it is acknowledged takes memory like what waits.
        let bytes = queue.bytes() + outlet.outbound.window().kept_bytes();
        let messages = queue.len();
        Self { messages, bytes, in_memory: queue.bytes_in_memory() }
    }
}

impl Session {
    /// Locks the outlet for what `act` does to it. Then what its queue has gained or lost is counted for the tenant, and
    /// publishers that were held back are told when there is room again: they are other sessions, and never locked
    /// together with this one.
    #[inline(always)]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Outlet) -> R) -> R {
        let mut outlet = self.outlet.lock();
        let before = Load::of(&outlet);
        let result = act(&mut outlet);
        let after = Load::of(&outlet);
        if before != after || self.is_full() {
            self.keep_books(outlet, before, after);
        }
        result
    }

    /// What follows from a change of what waits.
    #[inline(never)]
    fn keep_books(&self, mut outlet: MutexGuard<'_, Outlet>, before: Load, after: Load) {
        if before != after {
            self.count(before, after);
        }
        let publishers = if self.is_full() { self.take_waiters(&mut outlet) } else { None };
        drop(outlet);
        if after.messages < before.messages || after.bytes < before.bytes {
            // What all queues of the tenant may hold has room for others.
            for full in self.account.queued.take_full() {
                if let Some(full) = full.upgrade() {
                    full.look_for_room();
                }
            }
        }
        for publisher in publishers.into_iter().flat_map(|waiters| waiters.0) {
            if let Some(publisher) = publisher.upgrade() {
                publisher.wake();
            }
        }
    }

    fn count(&self, before: Load, after: Load) {
        let sums = (before.messages, before.bytes);
        self.account.queued.count(sums, (after.messages, after.bytes));
        if self.durable.is_some() {
            self.account.shards.count_in_memory(before.in_memory, after.in_memory);
        }
    }

    /// Those who wait for room in the queue, if it has some by now.
    fn take_waiters(&self, outlet: &mut Outlet) -> Option<Box<RoomWaiters>> {
        // Noted before it is looked at, so that room that others make meanwhile is not missed.
        self.set_full(self.account.queue_limits().tenant);
        let limits = self.account.queue_limits();
        let holds_back = limits.overflow == Overflow::Block;
        if holds_back && !outlet.outbound.queue().room(&limits).is_some() {
            return None;
        }
        self.fullness.fetch_add(1, Ordering::Release);
        outlet.room_waiters.take()
    }
}
