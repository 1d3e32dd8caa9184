//! The messages between the broker and one client since it connected, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Messages, and the bytes of their packets, in both directions. In each direction one thread at a time counts.
#[derive(Debug, Default)]
pub struct ClientTraffic {
    received: Passed<AtomicU64>,
    sent: Passed<AtomicU64>,
}

/// Messages in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed<N = u64> {
    /// Messages.
    pub messages: N,
    /// Bytes of the packets with these messages: PUBLISH of MQTT, messages of AMQP.
    pub bytes: N,
}

impl Passed<AtomicU64> {
    #[inline]
    fn add(&self, messages: u64, bytes: u64) {
        // Cheaper than an addition that other threads may make at the same time.
        let add = |sum: &AtomicU64, more: u64| {
            sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.messages, messages);
        add(&self.bytes, bytes);
    }

    fn get(&self) -> Passed {
        let Self { messages, bytes } = self;
        Passed { messages: messages.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    fn clear(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

impl ClientTraffic {
    /// Counts messages from the client.
    #[inline]
    pub fn add_received(&self, messages: u64, bytes: u64) {
        self.received.add(messages, bytes);
    }

    /// Counts messages to the client.
    #[inline]
    pub fn add_sent(&self, messages: u64, bytes: u64) {
        self.sent.add(messages, bytes);
    }

    /// Begins anew, for another connection.
    pub fn clear(&self) {
        self.received.clear();
        self.sent.clear();
    }

    /// Returns what has been received, and what has been sent.
    pub fn get(&self) -> (Passed, Passed) {
        (self.received.get(), self.sent.get())
    }
}
