//! All that is on its way to one session's client, in the one order in which it leaves.

use std::collections::VecDeque;

use mqtt_proto::QoS;

use super::send_window::Resend;
use super::{Acked, Delivery, DropReason, PacketId, Queue, QueueLimits, SendWindow};
use crate::time::Timestamp;

/// The send window and the queue behind it.
///
/// Order: what has to be sent again comes first, then retained messages that a subscription asked for,
/// then the queue, then what arrives. A caller that has a message in hand may bypass all of them only
/// while [`Outbound::is_idle`].
#[derive(Debug, Default)]
pub struct Outbound {
    window: SendWindow,
    /// Retained messages for new subscriptions. They are not counted against the queue's limits: their
    /// bytes are shared with the retained store, and cutting them short would lie about its state. Seldom
    /// there, so it takes no room in an idle session.
    replay: Option<Box<Replay>>,
    queue: Queue,
    /// Whether the session outlives its connection, so that messages are kept until acknowledged.
    survives: bool,
}

/// Retained messages on their way to new subscriptions.
#[derive(Debug, Default)]
struct Replay(VecDeque<Delivery>);

/// The next packet to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A PUBLISH; with a packet identifier when its QoS is 1 or 2.
    Publish {
        /// What to send.
        delivery: Delivery,
        /// Its packet identifier.
        id: Option<PacketId>,
        /// Whether it was sent before (DUP).
        dup: bool,
    },
    /// A PUBREL, sent again.
    PubRel(PacketId),
}

impl Outbound {
    /// For a session that ends with its connection, or `survives` it.
    pub fn new(receive_maximum: u16, survives: bool) -> Self {
        Self { window: SendWindow::new(receive_maximum), survives, ..Self::default() }
    }

    /// Nothing waits before a message that arrives now.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.replay.is_none() && !self.window.is_resending()
    }

    /// Whether messages of QoS 1 and 2 must be kept until acknowledged.
    pub fn survives(&self) -> bool {
        self.survives
    }

    /// The session now ends with its connection, or does not.
    pub fn set_survives(&mut self, survives: bool) {
        self.survives = survives;
    }

    /// Messages that wait or are in flight: the load of this session.
    pub fn depth(&self) -> usize {
        self.replay.as_ref().map_or(0, |replay| replay.0.len())
            + self.queue.len()
            + usize::from(self.window.in_flight())
    }

    /// The messages that wait.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The messages in flight.
    pub fn window(&self) -> &SendWindow {
        &self.window
    }

    /// Whether one more message of QoS 1 or 2 may leave now.
    pub fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// Takes a packet identifier for a message that leaves at once; see [`SendWindow::reserve`].
    pub fn reserve(&mut self, qos: QoS, kept: Option<Box<Delivery>>) -> Option<PacketId> {
        self.window.reserve(qos, kept)
    }

    /// Lets a message wait. Each message that this costs is told to `dropped`.
    pub fn enqueue(
        &mut self,
        delivery: Delivery,
        limits: &QueueLimits,
        dropped: impl FnMut(DropReason),
    ) {
        self.queue.push(delivery, limits, dropped);
    }

    /// Lets retained messages wait, ahead of the queue.
    pub fn replay(&mut self, deliveries: Vec<Delivery>) {
        if !deliveries.is_empty() {
            self.replay.get_or_insert_default().0.extend(deliveries);
        }
    }

    /// Whether retained messages wait.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// The next packet that may leave now, if any. Each message that expired is told to `dropped`.
    pub fn next(&mut self, now: Timestamp, dropped: impl FnMut(DropReason)) -> Option<Outgoing> {
        if self.window.is_resending() {
            match self.window.next_resend() {
                Some(Resend::Publish(id, delivery)) => {
                    return Some(Outgoing::Publish {
                        delivery: *delivery,
                        id: Some(id),
                        dup: true,
                    });
                }
                Some(Resend::PubRel(id)) => return Some(Outgoing::PubRel(id)),
                None if self.window.is_resending() => return None,
                None => {}
            }
        }
        self.drop_expired_replay(now);
        let replayed = self.replay.as_ref().and_then(|replay| replay.0.front());
        let front = replayed.or(self.queue.front())?;
        if front.qos != QoS::AtMostOnce && !self.window.has_room() {
            return None;
        }
        let delivery = match self.next_replayed() {
            Some(delivery) => delivery,
            None => self.queue.pop_live(now, dropped)?,
        };
        if delivery.qos == QoS::AtMostOnce {
            return Some(Outgoing::Publish { delivery, id: None, dup: false });
        }
        let kept = self.must_keep(delivery.shared.is_some()).then(|| Box::new(delivery.clone()));
        match self.window.reserve(delivery.qos, kept) {
            Some(id) => Some(Outgoing::Publish { delivery, id: Some(id), dup: false }),
            None => {
                // The front had QoS 0 and has expired; what came behind it must wait for the window.
                self.queue.push_front(delivery);
                None
            }
        }
    }

    /// A retained message that has expired is no longer retained, so nothing is lost.
    fn drop_expired_replay(&mut self, now: Timestamp) {
        while let Some(replay) = &mut self.replay
            && replay.0.front().is_none_or(|front| front.message.is_expired(now))
        {
            if replay.0.pop_front().is_none() {
                self.replay = None;
            }
        }
    }

    fn next_replayed(&mut self) -> Option<Delivery> {
        let replay = self.replay.as_mut()?;
        let delivery = replay.0.pop_front();
        if replay.0.is_empty() {
            self.replay = None;
        }
        delivery
    }

    /// See [`SendWindow::on_puback`].
    pub fn on_puback(&mut self, id: PacketId) -> Acked {
        self.window.on_puback(id)
    }

    /// See [`SendWindow::on_pubrec`].
    pub fn on_pubrec(&mut self, id: PacketId, accepted: bool) -> Acked {
        self.window.on_pubrec(id, accepted)
    }

    /// See [`SendWindow::on_pubcomp`].
    pub fn on_pubcomp(&mut self, id: PacketId) -> Acked {
        self.window.on_pubcomp(id)
    }

    /// A connection takes the session over and accepts `receive_maximum` unacknowledged messages.
    pub fn resume(&mut self, receive_maximum: u16) {
        self.window.resume(receive_maximum);
    }

    /// One message of each shared subscription that has something in flight or waiting here.
    pub fn shared(&self) -> Vec<Delivery> {
        let mut found: Vec<Delivery> = Vec::new();
        for delivery in self.window.kept().chain(self.queue.iter()) {
            if delivery.shared.is_some() && !found.iter().any(|one| one.shared == delivery.shared) {
                found.push(delivery.clone());
            }
        }
        found
    }

    /// The client has gone: takes what shared subscriptions can give to other members, which
    /// `has_other` knows by their names. QoS 1 messages in flight and all that wait, but not QoS 2
    /// messages in flight (MQTT 5 §4.8.2: those stay with the session they were sent to).
    pub fn take_shared(&mut self, mut has_other: impl FnMut(&Delivery) -> bool) -> Vec<Delivery> {
        let mut taken = self.window.take_kept(|kept| {
            kept.shared.is_some() && kept.qos != QoS::ExactlyOnce && has_other(kept)
        });
        taken.extend(self.queue.take(|waiting| waiting.shared.is_some() && has_other(waiting)));
        taken
    }

    /// Whether a message of QoS 1 or 2 must be kept until it is acknowledged; `shared`: it came by a
    /// shared subscription.
    pub fn must_keep(&self, shared: bool) -> bool {
        self.survives || shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Overflow;
    use crate::session::tests_support::{delivery, expiring, shared};

    const LIMITS: QueueLimits =
        QueueLimits { messages: 9, bytes: 9_999, overflow: Overflow::DropNewest };
    const NOW: Timestamp = Timestamp::from_millis(100);

    fn outbound(receive_maximum: u16, waiting: Vec<Delivery>) -> Outbound {
        let mut outbound = Outbound::new(receive_maximum, true);
        for delivery in waiting {
            outbound.enqueue(delivery, &LIMITS, |_| panic!("no limit is reached"));
        }
        outbound
    }

    fn next(outbound: &mut Outbound) -> Option<(u8, Option<PacketId>, bool)> {
        match outbound.next(NOW, |_| {})? {
            Outgoing::Publish { delivery, id, dup } => {
                Some((delivery.message.publication().payload[0], id, dup))
            }
            Outgoing::PubRel(id) => Some((255, Some(id), false)),
        }
    }

    #[test]
    fn the_queue_leaves_in_order_as_the_window_opens() {
        let mut outbound = outbound(
            1,
            vec![
                delivery(0, QoS::AtLeastOnce),
                delivery(1, QoS::AtMostOnce),
                delivery(2, QoS::AtLeastOnce),
            ],
        );
        assert_eq!(next(&mut outbound), Some((0, Some(1), false)));
        assert_eq!(next(&mut outbound), Some((1, None, false)));
        assert_eq!(next(&mut outbound), None);
        outbound.on_puback(1);
        assert_eq!(next(&mut outbound), Some((2, Some(2), false)));
        assert!(outbound.is_idle());
        assert_eq!(outbound.depth(), 1);
    }

    #[test]
    fn an_expired_front_does_not_let_a_message_past_the_window() {
        let mut outbound = outbound(1, vec![expiring(50), delivery(1, QoS::AtLeastOnce)]);
        outbound.reserve(QoS::AtLeastOnce, None).unwrap();
        assert_eq!(next(&mut outbound), None);
        assert_eq!(outbound.queue().len(), 1);
        outbound.on_puback(1);
        assert_eq!(next(&mut outbound), Some((1, Some(2), false)));
    }

    #[test]
    fn a_reconnection_sends_again_before_anything_new() {
        let mut outbound =
            outbound(9, vec![delivery(0, QoS::AtLeastOnce), delivery(1, QoS::ExactlyOnce)]);
        next(&mut outbound);
        next(&mut outbound);
        outbound.on_pubrec(2, true);
        outbound.resume(9);
        assert!(!outbound.is_idle());
        outbound.enqueue(delivery(2, QoS::AtLeastOnce), &LIMITS, |_| panic!());
        assert_eq!(next(&mut outbound), Some((0, Some(1), true)));
        assert_eq!(next(&mut outbound), Some((255, Some(2), false)));
        assert_eq!(next(&mut outbound), Some((2, Some(3), false)));
        assert_eq!(next(&mut outbound), None);
    }

    #[test]
    fn retained_messages_leave_before_what_came_later() {
        let mut outbound = outbound(1, vec![delivery(9, QoS::AtMostOnce)]);
        outbound.replay(vec![delivery(0, QoS::AtLeastOnce), delivery(1, QoS::AtMostOnce)]);
        assert_eq!(next(&mut outbound), Some((0, Some(1), false)));
        assert_eq!(next(&mut outbound), Some((1, None, false)));
        assert!(!outbound.is_idle());
        assert_eq!(next(&mut outbound), Some((9, None, false)));
        assert!(outbound.is_idle());
    }

    #[test]
    fn retained_messages_that_expire_while_they_wait_are_passed_over() {
        let mut outbound = outbound(1, vec![delivery(9, QoS::AtLeastOnce)]);
        outbound.replay(vec![expiring(50), delivery(1, QoS::AtMostOnce), expiring(60)]);
        assert_eq!(next(&mut outbound), Some((1, None, false)));
        assert_eq!(next(&mut outbound), Some((9, Some(1), false)));
        assert!(outbound.is_idle() && !outbound.is_replaying());
    }

    #[test]
    fn shared_messages_can_go_to_another_member() {
        let mut outbound = outbound(
            2,
            vec![
                shared(0, QoS::AtLeastOnce),
                shared(1, QoS::ExactlyOnce),
                shared(2, QoS::AtLeastOnce),
                delivery(3, QoS::AtLeastOnce),
            ],
        );
        next(&mut outbound);
        next(&mut outbound);
        assert_eq!(outbound.shared(), [shared(0, QoS::AtLeastOnce)]);
        let taken = outbound.take_shared(|_| true);
        assert_eq!(taken, [shared(0, QoS::AtLeastOnce), shared(2, QoS::AtLeastOnce)]);
        outbound.resume(2);
        assert_eq!(next(&mut outbound), Some((1, Some(2), true)), "QoS 2 stays");
        assert_eq!(next(&mut outbound), Some((3, Some(3), false)));
    }
}
