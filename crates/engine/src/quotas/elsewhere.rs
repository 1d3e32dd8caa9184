//! What a tenant uses at the other brokers of the cluster.

use std::sync::atomic::{AtomicU64, Ordering};

use barid_peers::Used;

/// What a tenant uses at all other brokers together, as far as they have told. Limits that are no rates hold for this and
/// what it uses here.
#[derive(Debug, Default)]
pub struct Elsewhere {
    connections: AtomicU64,
    sessions: AtomicU64,
    subscriptions: AtomicU64,
    queued_messages: AtomicU64,
    queued_bytes: AtomicU64,
}

impl Elsewhere {
    /// What one of the other brokers has told changes from `before` to `after`.
    pub(crate) fn change(&self, before: &Used, after: &Used) {
        let change = |count: &AtomicU64, of: fn(&Used) -> u64| {
            // Difference and addition both wrap around, so the sum is correct.
            count.fetch_add(of(after).wrapping_sub(of(before)), Ordering::Relaxed);
        };
        change(&self.connections, |used| used.connections);
        change(&self.sessions, |used| used.sessions);
        change(&self.subscriptions, |used| used.subscriptions);
        change(&self.queued_messages, |used| used.queued_messages);
        change(&self.queued_bytes, |used| used.queued_bytes);
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        read(&self.connections)
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        read(&self.sessions)
    }

    /// Number of subscriptions.
    pub fn subscriptions(&self) -> usize {
        read(&self.subscriptions)
    }

    /// Number of messages that wait in the queues of sessions.
    pub fn queued_messages(&self) -> usize {
        read(&self.queued_messages)
    }

    /// Bytes of these.
    pub fn queued_bytes(&self) -> usize {
        read(&self.queued_bytes)
    }
}

fn read(count: &AtomicU64) -> usize {
    usize::try_from(count.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}
