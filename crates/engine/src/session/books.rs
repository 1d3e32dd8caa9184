//! Locking of outlets, and accounting of the messages that wait in them.

use std::sync::atomic::Ordering;

use barid_core::holder::Held;
use barid_core::queue::Overflow;

use super::Session;
use super::outlet::{Outlet, RoomWaiters};
use crate::progress::Waiter;
use crate::sync::MutexGuard;

/// The load of an outlet that counts for its tenant and its user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    messages: usize,
    pub(super) bytes: usize,
    in_memory: usize,
}

impl Load {
    pub(super) fn of(outlet: &Outlet) -> Self {
        let queue = outlet.outbound.queue();
        // Messages that are kept until acknowledged take memory like waiting messages.
        let bytes = queue.bytes() + outlet.outbound.window().kept_bytes();
        let messages = queue.len();
        Self { messages, bytes, in_memory: queue.bytes_in_memory() }
    }
}

impl Session {
    /// Locks the outlet and calls `act`. Afterwards, changes of its queue are counted for tenant and user, and
    /// publishers that were held back are woken if there is room again. Publishers are other sessions, and
    /// are never locked together with this one.
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

    /// Counts a change of the load, and wakes publishers if there is room again.
    #[inline(never)]
    fn keep_books(&self, mut outlet: MutexGuard<'_, Outlet>, before: Load, after: Load) {
        if before != after {
            self.count(&outlet, before, after);
        }
        let publishers = if self.is_full() { self.take_waiters(&mut outlet) } else { None };
        let holder = outlet.holder.clone();
        drop(outlet);
        if after.messages < before.messages || after.bytes < before.bytes {
            // The limits of all queues together leave room for other queues.
            self.account.queued.look_for_room(holder.as_ref());
        }
        for publisher in publishers.into_iter().flat_map(|waiters| waiters.0) {
            if let Some(publisher) = publisher.upgrade() {
                publisher.wake();
            }
        }
    }

    fn count(&self, outlet: &Outlet, before: Load, after: Load) {
        let sums = (before.messages, before.bytes);
        self.account.queued.count(sums, (after.messages, after.bytes));
        if let Some(holder) = outlet.holder.as_ref().filter(|_| before.bytes != after.bytes) {
            holder.change(Held::QueuedBytes, before.bytes as u64, after.bytes as u64);
        }
        if self.durable.is_some() {
            self.account.shards.count_in_memory(before.in_memory, after.in_memory);
        }
    }

    /// Takes the publishers that wait for room in the queue, if it has room by now or full queues no longer
    /// block.
    fn take_waiters(&self, outlet: &mut Outlet) -> Option<Box<RoomWaiters>> {
        // Registered before the check, so that room that other queues make meanwhile is not missed.
        self.set_full(&self.queue_limits(outlet), outlet);
        let limits = self.queue_limits(outlet);
        let holds_back = limits.overflow == Overflow::Block;
        if holds_back && !outlet.outbound.queue().room(&limits).is_some() {
            return None;
        }
        self.fullness.fetch_add(1, Ordering::Release);
        outlet.room_waiters.take()
    }
}
