//! Queues of waiting messages: those for the client of an MQTT session, and those of a message session.

use std::collections::VecDeque;

use crate::drop_reason::DropReason;

/// A first-in-first-out queue. The caller of [`Queue::push`] passes the limits.
#[derive(Debug)]
pub struct Queue<T> {
    items: VecDeque<T>,
    bytes: usize,
    in_memory: usize,
}

/// An item that can wait in a queue.
pub trait Queued {
    /// The clock by which the item's time to live runs.
    type Time: Copy;

    /// Bytes of the message and of its overhead, as limits count them.
    fn size(&self) -> usize;

    /// Number of these bytes that the item keeps in memory.
    fn size_in_memory(&self) -> usize;

    /// Whether the item's time to live has run out.
    fn is_expired(&self, now: Self::Time) -> bool;

    /// Whether the sender can be told that the queue is full.
    fn is_refusable(&self) -> bool;
}

/// An item with a fixed place in its queue, to which it can return.
pub trait Numbered: Queued {
    /// The item's place: greater than that of every item pushed before.
    fn number(&self) -> u64;
}

/// Limits of a queue, and what happens when one is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum number of bytes, as [`Queued::size`] counts them.
    pub bytes: usize,
    /// The action taken when a limit is reached.
    pub overflow: Overflow,
    /// Remaining room for all queues of the tenant together.
    pub tenant: Room,
    /// Remaining bytes for all queues of the user to whom the queue belongs.
    pub user_bytes: usize,
}

impl QueueLimits {
    /// The room that queues have together: those of the tenant, and those of the user.
    pub fn together(&self) -> Room {
        self.tenant.min(Room { messages: usize::MAX, bytes: self.user_bytes })
    }

    /// Takes the room that a queue needs more than `before`, or gives back what it needs less. Both are messages and
    /// bytes.
    pub fn follow(&mut self, before: (usize, usize), after: (usize, usize)) {
        let left = |room: usize, before, after| room.saturating_add(before).saturating_sub(after);
        self.tenant.messages = left(self.tenant.messages, before.0, after.0);
        self.tenant.bytes = left(self.tenant.bytes, before.1, after.1);
        self.user_bytes = left(self.user_bytes, before.1, after.1);
    }
}

/// Remaining room in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Number of messages that fit.
    pub messages: usize,
    /// Number of bytes that fit, as [`Queued::size`] counts them.
    pub bytes: usize,
}

impl Room {
    /// Room for everything.
    pub const UNBOUNDED: Self = Self { messages: usize::MAX, bytes: usize::MAX };

    /// Whether there is any room.
    pub fn is_some(self) -> bool {
        self.messages > 0 && self.bytes > 0
    }

    /// The smaller of two rooms, by messages and by bytes.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { messages: self.messages.min(other.messages), bytes: self.bytes.min(other.bytes) }
    }

    /// Takes the room of one message of `size` bytes. Returns false, and takes nothing, if there is not enough.
    pub fn take(&mut self, size: usize) -> bool {
        let fits = self.messages > 0 && size <= self.bytes;
        if fits {
            self.messages -= 1;
            self.bytes -= size;
        }
        fits
    }
}

/// The action taken when a queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The arriving message is dropped.
    #[default]
    DropNewest,
    /// The messages that have waited longest are dropped.
    DropOldest,
    /// The publisher is refused: its thread checks [`Queue::room`] before. Publishers that publish at the same moment
    /// may exceed the limit a little. A message of QoS 0 cannot be refused and is dropped.
    Reject,
    /// The publisher's acknowledgement is held back until the queue is below its limit. Messages that publishers have
    /// in flight exceed the limit. A message of QoS 0 has no acknowledgement and is dropped.
    Block,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0, in_memory: 0 }
    }
}

impl<T: Queued> Queue<T> {
    /// Number of waiting messages.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the waiting messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number and bytes of the waiting messages.
    pub fn load(&self) -> (usize, usize) {
        (self.len(), self.bytes)
    }

    /// Bytes of the waiting messages that are kept in memory; the other messages are in the store only.
    pub fn bytes_in_memory(&self) -> usize {
        self.in_memory
    }

    /// Returns how much more fits.
    pub fn room(&self, limits: &QueueLimits) -> Room {
        let own = Room {
            messages: limits.messages.saturating_sub(self.len()),
            bytes: limits.bytes.saturating_sub(self.bytes),
        };
        own.min(limits.together())
    }

    /// Appends a delivery. Calls `dropped` for each message that is dropped for it, older ones or the delivery itself;
    /// expired messages are dropped first. Returns false if the delivery itself was dropped.
    pub fn push(
        &mut self,
        delivery: impl Into<T>,
        now: T::Time,
        limits: &QueueLimits,
        mut dropped: impl FnMut(DropReason, &T),
    ) -> bool {
        let delivery = delivery.into();
        let size = delivery.size();
        let mut limits = *limits;
        while let Some(reason) = self.excess(size, &limits) {
            let expired = self.items.front().is_some_and(|front| front.is_expired(now));
            let makes_room = expired
                || match limits.overflow {
                    Overflow::DropNewest => false,
                    Overflow::DropOldest => true,
                    Overflow::Reject | Overflow::Block if !delivery.is_refusable() => false,
                    Overflow::Reject | Overflow::Block => break,
                };
            let Some(oldest) = makes_room.then(|| self.pop()).flatten() else {
                dropped(reason, &delivery);
                return false;
            };
            limits.tenant.messages = limits.tenant.messages.saturating_add(1);
            limits.tenant.bytes = limits.tenant.bytes.saturating_add(oldest.size());
            limits.user_bytes = limits.user_bytes.saturating_add(oldest.size());
            dropped(if expired { DropReason::Expired } else { reason }, &oldest);
        }
        self.restore(delivery);
        true
    }

    /// Appends a delivery that was in the queue before, regardless of the current limits.
    pub fn restore(&mut self, delivery: impl Into<T>) {
        let delivery = delivery.into();
        self.count(&delivery);
        self.items.push_back(delivery);
    }

    /// Takes the oldest delivery that has not expired. Removes each expired one before it and passes it to `dropped`.
    pub fn pop_live(&mut self, now: T::Time, mut dropped: impl FnMut(DropReason, &T)) -> Option<T> {
        while let Some(delivery) = self.pop() {
            if !delivery.is_expired(now) {
                return Some(delivery);
            }
            dropped(DropReason::Expired, &delivery);
        }
        None
    }

    /// Puts back a delivery that was just popped.
    pub(crate) fn push_front(&mut self, delivery: T) {
        self.count(&delivery);
        self.items.push_front(delivery);
    }

    /// The oldest delivery.
    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    /// The deliveries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// Changes the first delivery, from the place `from` on, that `chosen` accepts. Returns its place.
    pub(crate) fn change(
        &mut self,
        from: usize,
        mut chosen: impl FnMut(&T) -> bool,
        change: impl FnOnce(&mut T),
    ) -> Option<usize> {
        let place = from + self.items.range(from..).position(&mut chosen)?;
        let item = &mut self.items[place];
        (self.bytes, self.in_memory) =
            (self.bytes - item.size(), self.in_memory - item.size_in_memory());
        change(item);
        (self.bytes, self.in_memory) =
            (self.bytes + item.size(), self.in_memory + item.size_in_memory());
        Some(place)
    }

    /// Removes and returns the deliveries that `chosen` accepts, oldest first.
    pub fn take(&mut self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
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
        for delivery in &taken {
            self.discount(delivery);
        }
        taken
    }

    fn count(&mut self, delivery: &T) {
        self.bytes += delivery.size();
        self.in_memory += delivery.size_in_memory();
    }

    fn discount(&mut self, delivery: &T) {
        self.bytes -= delivery.size();
        self.in_memory -= delivery.size_in_memory();
    }

    fn excess(&self, size: usize, limits: &QueueLimits) -> Option<DropReason> {
        if self.items.len() >= limits.messages {
            Some(DropReason::QueueMessages)
        } else if self.bytes + size > limits.bytes {
            Some(DropReason::QueueBytes)
        } else if limits.tenant.messages == 0 || size > limits.tenant.bytes {
            Some(DropReason::TenantQueue)
        } else if size > limits.user_bytes {
            Some(DropReason::UserQueue)
        } else {
            None
        }
    }

    /// Takes the oldest delivery, expired or not.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let delivery = self.items.pop_front()?;
        self.discount(&delivery);
        if self.items.is_empty() {
            // Frees the memory: a burst must not cost memory for the rest of the session.
            self.items = VecDeque::new();
        }
        Some(delivery)
    }
}

impl<T: Numbered> Queue<T> {
    /// Inserts a delivery at the place that its number gives. Cheap near either end of the queue; a returning delivery
    /// was at the front.
    pub fn put_back(&mut self, delivery: T) {
        self.count(&delivery);
        let place = match self.items.front() {
            Some(front) if front.number() < delivery.number() => {
                self.items.partition_point(|item| item.number() < delivery.number())
            }
            _ => 0,
        };
        self.items.insert(place, delivery);
    }

    /// The deliveries with this number or a greater one, in order.
    pub fn starting_at(&self, number: u64) -> impl Iterator<Item = &T> {
        let place = self.items.partition_point(|item| item.number() < number);
        self.items.range(place..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Waiting;
    use crate::session::tests_support::{delivery, expiring};
    use crate::time::MonoTime;
    use mqtt_proto::QoS;

    const LIMITS: QueueLimits = QueueLimits {
        messages: 2,
        bytes: 100_000,
        overflow: Overflow::DropNewest,
        tenant: Room::UNBOUNDED,
        user_bytes: usize::MAX,
    };

    const NOW: MonoTime = MonoTime::from_millis(100);

    fn push(queue: &mut Queue<Waiting>, n: u8, limits: &QueueLimits) -> Vec<DropReason> {
        let mut drops = Vec::new();
        queue.push(delivery(n, QoS::AtMostOnce), NOW, limits, |reason, _| drops.push(reason));
        drops
    }

    #[test]
    fn drop_newest_refuses_what_arrives() {
        let mut queue = Queue::<Waiting>::default();
        assert_eq!(push(&mut queue, 0, &LIMITS), []);
        assert_eq!(push(&mut queue, 1, &LIMITS), []);
        assert_eq!(push(&mut queue, 2, &LIMITS), [DropReason::QueueMessages]);
        assert_eq!(queue.front(), Some(&Waiting::Here(delivery(0, QoS::AtMostOnce))));
        assert_eq!(queue.len(), 2);
    }

    /// The size of each delivery in these tests.
    fn cost() -> usize {
        Queued::size(&Waiting::Here(delivery(0, QoS::AtMostOnce)))
    }

    #[test]
    fn drop_oldest_makes_room_by_count_and_by_bytes() {
        let size = cost();
        let by_count = QueueLimits { overflow: Overflow::DropOldest, ..LIMITS };
        let mut queue = Queue::<Waiting>::default();
        for n in 0..3 {
            push(&mut queue, n, &by_count);
        }
        assert_eq!(queue.front(), Some(&Waiting::Here(delivery(1, QoS::AtMostOnce))));
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
        let mut queue = Queue::<Waiting>::default();
        queue.push(expiring(10), MonoTime::default(), &LIMITS, |_, _| panic!());
        queue.push(delivery(1, QoS::AtMostOnce), MonoTime::default(), &LIMITS, |_, _| panic!());
        let mut drops = Vec::new();
        let next = queue.pop_live(MonoTime::from_millis(10), |reason, _| drops.push(reason));
        assert_eq!(next, Some(Waiting::Here(delivery(1, QoS::AtMostOnce))));
        assert_eq!(drops, [DropReason::Expired]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn taking_some_keeps_the_order_of_the_rest() {
        let limits = QueueLimits { messages: 9, ..LIMITS };
        let mut queue = Queue::<Waiting>::default();
        for n in 0..4 {
            push(&mut queue, n, &limits);
        }
        let taken =
            queue.take(|d| d.here().unwrap().message.publication().payload[0].is_multiple_of(2));
        assert_eq!(taken, [0, 2].map(|n| Waiting::Here(delivery(n, QoS::AtMostOnce))));
        assert_eq!(queue.front(), Some(&Waiting::Here(delivery(1, QoS::AtMostOnce))));
        assert_eq!(queue.bytes(), 2 * cost());
    }

    #[test]
    fn the_tenants_room_counts_for_every_queue() {
        let size = cost();
        let tenant = Room { messages: 9, bytes: size };
        let limits = QueueLimits { messages: 9, tenant, ..LIMITS };
        let mut queue = Queue::<Waiting>::default();
        assert_eq!(push(&mut queue, 0, &limits), []);
        let full = QueueLimits { tenant: Room { messages: 9, bytes: 0 }, ..limits };
        assert_eq!(push(&mut queue, 1, &full), [DropReason::TenantQueue]);
        let oldest = QueueLimits { overflow: Overflow::DropOldest, ..full };
        assert_eq!(push(&mut queue, 2, &oldest), [DropReason::TenantQueue]);
        assert_eq!(queue.front(), Some(&Waiting::Here(delivery(2, QoS::AtMostOnce))));
    }

    #[test]
    fn the_users_room_counts_for_each_of_its_queues() {
        let size = cost();
        let limits = QueueLimits { messages: 9, user_bytes: size, ..LIMITS };
        let mut queue = Queue::<Waiting>::default();
        assert_eq!(push(&mut queue, 0, &limits), []);
        let full = QueueLimits { user_bytes: size - 1, ..limits };
        assert_eq!(push(&mut queue, 1, &full), [DropReason::UserQueue]);
        assert_eq!(queue.room(&full).bytes, size - 1);
        let oldest = QueueLimits { overflow: Overflow::DropOldest, ..full };
        assert_eq!(push(&mut queue, 2, &oldest), [DropReason::UserQueue]);
        assert_eq!(queue.front(), Some(&Waiting::Here(delivery(2, QoS::AtMostOnce))));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_room_of_all_queues_follows_one_of_them() {
        let tenant = Room { messages: 5, bytes: 100 };
        let mut limits = QueueLimits { tenant, user_bytes: 50, ..LIMITS };
        limits.follow((1, 10), (3, 40));
        assert_eq!((limits.tenant, limits.user_bytes), (Room { messages: 3, bytes: 70 }, 20));
        limits.follow((3, 40), (3, 90));
        assert_eq!(limits.together(), Room { messages: 3, bytes: 0 });
        limits.follow((3, 90), (2, 80));
        assert_eq!((limits.tenant, limits.user_bytes), (Room { messages: 4, bytes: 30 }, 10));
    }

    #[test]
    fn publishers_who_can_be_told_lose_nothing() {
        for overflow in [Overflow::Reject, Overflow::Block] {
            let limits = QueueLimits { messages: 1, overflow, ..LIMITS };
            let mut queue = Queue::<Waiting>::default();
            assert!(queue.push(delivery(0, QoS::AtLeastOnce), NOW, &limits, |_, _| panic!()));
            assert_eq!(queue.room(&limits).messages, 0);
            assert!(queue.push(delivery(1, QoS::AtLeastOnce), NOW, &limits, |_, _| panic!()));
            assert_eq!(push(&mut queue, 2, &limits), [DropReason::QueueMessages]);
            assert_eq!(queue.len(), 2);
        }
    }
}
