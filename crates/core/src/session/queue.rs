//! Messages that wait for a client.

use std::collections::VecDeque;

use super::Delivery;
use crate::time::Timestamp;

/// A bounded first-in-first-out queue of deliveries.
#[derive(Debug, Default)]
pub struct Queue {
    items: VecDeque<Delivery>,
    bytes: usize,
}

/// What a queue may hold, and what happens beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most messages.
    pub messages: usize,
    /// The most bytes of topics, properties and payloads.
    pub bytes: usize,
    /// Which message goes when a limit is reached.
    pub overflow: Overflow,
}

/// Which message is dropped when a queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The one that arrives.
    #[default]
    DropNewest,
    /// The ones that have waited longest.
    DropOldest,
}

/// Why a message did not reach a session that had subscribed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The session's queue holds its most messages.
    QueueMessages,
    /// The session's queue holds its most bytes.
    QueueBytes,
    /// The Message Expiry Interval ran out while it waited.
    Expired,
    /// Larger than the client's Maximum Packet Size.
    PacketTooLarge,
    /// QoS 0 and the client is not connected.
    Offline,
    /// The session ended while the message waited in it.
    SessionEnded,
    /// The subscriber refused it (PUBREC or PUBACK with an error).
    Refused,
    /// It could not be retained: the tenant has its most retained messages.
    RetainedMessages,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::QueueMessages,
        Self::QueueBytes,
        Self::Expired,
        Self::PacketTooLarge,
        Self::Offline,
        Self::SessionEnded,
        Self::Refused,
        Self::RetainedMessages,
    ];

    /// The name used in metrics and the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueMessages => "queue_messages",
            Self::QueueBytes => "queue_bytes",
            Self::Expired => "expired",
            Self::PacketTooLarge => "packet_too_large",
            Self::Offline => "offline",
            Self::SessionEnded => "session_ended",
            Self::Refused => "refused",
            Self::RetainedMessages => "retained_messages",
        }
    }
}

impl Queue {
    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the messages that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a delivery. Each message that this costs, itself or older ones, is told to `dropped`.
    pub fn push(
        &mut self,
        delivery: Delivery,
        limits: &QueueLimits,
        mut dropped: impl FnMut(DropReason),
    ) {
        let size = delivery.message.size();
        while let Some(reason) = self.excess(size, limits) {
            if limits.overflow == Overflow::DropNewest || self.pop().is_none() {
                dropped(reason);
                return;
            }
            dropped(reason);
        }
        self.bytes += size;
        self.items.push_back(delivery);
    }

    /// Takes the oldest delivery that has not expired; each expired one before it is told to `dropped`.
    pub fn pop_live(
        &mut self,
        now: Timestamp,
        mut dropped: impl FnMut(DropReason),
    ) -> Option<Delivery> {
        while let Some(delivery) = self.pop() {
            if !delivery.message.is_expired(now) {
                return Some(delivery);
            }
            dropped(DropReason::Expired);
        }
        None
    }

    /// Puts back a delivery that was just popped.
    pub(super) fn push_front(&mut self, delivery: Delivery) {
        self.bytes += delivery.message.size();
        self.items.push_front(delivery);
    }

    /// The oldest delivery.
    pub fn front(&self) -> Option<&Delivery> {
        self.items.front()
    }

    /// The deliveries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Delivery> {
        self.items.iter()
    }

    /// Removes and returns the deliveries for which `chosen` says so, oldest first.
    pub fn take(&mut self, mut chosen: impl FnMut(&Delivery) -> bool) -> Vec<Delivery> {
        let (taken, kept): (Vec<_>, VecDeque<_>) = std::mem::take(&mut self.items)
            .into_iter()
            .fold((Vec::new(), VecDeque::new()), |(mut taken, mut kept), delivery| {
                if chosen(&delivery) {
                    taken.push(delivery);
                } else {
                    kept.push_back(delivery);
                }
                (taken, kept)
            });
        self.items = kept;
        self.bytes -= taken.iter().map(|delivery| delivery.message.size()).sum::<usize>();
        taken
    }

    fn excess(&self, size: usize, limits: &QueueLimits) -> Option<DropReason> {
        if self.items.len() >= limits.messages {
            Some(DropReason::QueueMessages)
        } else if self.bytes + size > limits.bytes {
            Some(DropReason::QueueBytes)
        } else {
            None
        }
    }

    fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.items.pop_front()?;
        self.bytes -= delivery.message.size();
        if self.items.is_empty() {
            // A burst must not cost memory for the rest of the session.
            self.items = VecDeque::new();
        }
        Some(delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests_support::{delivery, expiring};
    use mqtt_proto::QoS;

    const LIMITS: QueueLimits =
        QueueLimits { messages: 2, bytes: 1_000, overflow: Overflow::DropNewest };

    fn push(queue: &mut Queue, n: u8, limits: &QueueLimits) -> Vec<DropReason> {
        let mut drops = Vec::new();
        queue.push(delivery(n, QoS::AtMostOnce), limits, |reason| drops.push(reason));
        drops
    }

    #[test]
    fn drop_newest_refuses_what_arrives() {
        let mut queue = Queue::default();
        assert_eq!(push(&mut queue, 0, &LIMITS), []);
        assert_eq!(push(&mut queue, 1, &LIMITS), []);
        assert_eq!(push(&mut queue, 2, &LIMITS), [DropReason::QueueMessages]);
        assert_eq!(queue.front(), Some(&delivery(0, QoS::AtMostOnce)));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn drop_oldest_makes_room_by_count_and_by_bytes() {
        let size = delivery(0, QoS::AtMostOnce).message.size();
        let by_count = QueueLimits { overflow: Overflow::DropOldest, ..LIMITS };
        let mut queue = Queue::default();
        for n in 0..3 {
            push(&mut queue, n, &by_count);
        }
        assert_eq!(queue.front(), Some(&delivery(1, QoS::AtMostOnce)));
        let by_bytes = QueueLimits { bytes: size, ..by_count };
        assert_eq!(
            push(&mut queue, 3, &by_bytes),
            [DropReason::QueueMessages, DropReason::QueueBytes]
        );
        assert_eq!((queue.len(), queue.bytes()), (1, size));
        let nothing_fits = QueueLimits { bytes: size - 1, ..by_count };
        assert_eq!(push(&mut queue, 4, &nothing_fits), [DropReason::QueueBytes; 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn expired_messages_are_passed_over_and_told() {
        let mut queue = Queue::default();
        queue.push(expiring(10), &LIMITS, |_| panic!());
        queue.push(delivery(1, QoS::AtMostOnce), &LIMITS, |_| panic!());
        let mut drops = Vec::new();
        let next = queue.pop_live(Timestamp::from_millis(10), |reason| drops.push(reason));
        assert_eq!(next, Some(delivery(1, QoS::AtMostOnce)));
        assert_eq!(drops, [DropReason::Expired]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn taking_some_keeps_the_order_of_the_rest() {
        let limits = QueueLimits { messages: 9, ..LIMITS };
        let mut queue = Queue::default();
        for n in 0..4 {
            push(&mut queue, n, &limits);
        }
        let taken = queue.take(|d| d.message.publication().payload[0].is_multiple_of(2));
        assert_eq!(taken, [delivery(0, QoS::AtMostOnce), delivery(2, QoS::AtMostOnce)]);
        assert_eq!(queue.front(), Some(&delivery(1, QoS::AtMostOnce)));
        assert_eq!(queue.bytes(), 2 * delivery(0, QoS::AtMostOnce).message.size());
    }
}
