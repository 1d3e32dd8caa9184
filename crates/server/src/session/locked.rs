//! The lock of an outlet, which keeps the books of what waits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use barid_core::queue::Overflow;
use parking_lot::MutexGuard;

use super::Session;
use super::outlet::Outlet;
use crate::progress::Waiter;

/// An outlet, locked. When it is let go, what its queue has gained or lost is counted for the tenant, and
/// publishers that were held back are told when there is room again.
pub(super) struct Locked<'a> {
    session: &'a Session,
    outlet: Option<MutexGuard<'a, Outlet>>,
    before: Load,
}

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
    /// Locks the outlet.
    pub(super) fn lock(&self) -> Locked<'_> {
        let outlet = self.outlet.lock();
        Locked { session: self, before: Load::of(&outlet), outlet: Some(outlet) }
    }
}

impl Deref for Locked<'_> {
    type Target = Outlet;

    fn deref(&self) -> &Outlet {
        self.outlet.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Outlet {
        self.outlet.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut outlet) = self.outlet.take() else { return };
        let (before, after) = (self.before, Load::of(&outlet));
        if before == after && !self.session.is_full() {
            return;
        }
        let tenant = &self.session.account;
        if before != after {
            tenant.queued.count((before.messages, before.bytes), (after.messages, after.bytes));
            if self.session.durable.is_some() {
                tenant.shards.count_in_memory(before.in_memory, after.in_memory);
            }
        }
        let mut waiters = None;
        if self.session.is_full() {
            // Noted before it is looked at, so that room that others make meanwhile is not missed.
            self.session.set_full(tenant.queue_limits().tenant);
            let limits = tenant.queue_limits();
            let holds_back = limits.overflow == Overflow::Block;
            if !holds_back || outlet.outbound.queue().room(&limits).is_some() {
                self.session.fullness.fetch_add(1, Ordering::Release);
                waiters = outlet.room_waiters.take();
            }
        }
        // Two sessions are never locked at once.
        drop(outlet);
        if after.messages < before.messages || after.bytes < before.bytes {
            // What all queues of the tenant may hold has room for others.
            for full in tenant.queued.take_full() {
                if let Some(full) = full.upgrade() {
                    full.look_for_room();
                }
            }
        }
        for publisher in waiters.into_iter().flat_map(|waiters| waiters.0) {
            if let Some(publisher) = publisher.upgrade() {
                publisher.wake();
            }
        }
    }
}
