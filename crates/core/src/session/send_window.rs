//! Packet identifiers in flight to a client, in the order in which they were sent.
//!
//! ```text
//!            reserve QoS 1                 on_puback
//!   (free) ────────────────► AwaitPubAck ────────────► Done
//!            reserve QoS 2                 on_pubrec                 on_pubcomp
//!   (free) ────────────────► AwaitPubRec ────────────► AwaitPubComp ────────────► Done
//!                                 └──── on_pubrec with an error ─────────────────► Done
//! ```
//!
//! Identifiers are given one after another, so the window is a ring: the slot of an identifier is
//! its distance from the oldest one. A `Done` slot leaves when it is the oldest.

use std::collections::VecDeque;

use mqtt_proto::QoS;

use super::Delivery;

impl Default for SendWindow {
    /// A window that takes nothing.
    fn default() -> Self {
        Self::new(0)
    }
}

/// A packet identifier: 1 to 65,535.
pub type PacketId = u16;

const IDS: u32 = 65_535;

/// Messages sent and not yet acknowledged, at most Receive Maximum of them on the wire.
#[derive(Debug)]
pub struct SendWindow {
    slots: VecDeque<Slot>,
    /// The identifier of `slots[0]`, or of the next message when there is none.
    oldest: PacketId,
    /// Slots that are not `Done` and were sent on this connection: what Receive Maximum bounds.
    on_wire: u16,
    /// How many slots at the back were sent on an earlier connection and not yet on this one.
    to_resend: u32,
    receive_maximum: u16,
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    /// The message, if it must be sent again when the connection is lost.
    kept: Option<Box<Delivery>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitPubAck,
    AwaitPubRec,
    AwaitPubComp,
    Done,
}

/// What an acknowledgement meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// It was expected.
    Expected,
    /// No such packet identifier is in flight in that state.
    Unknown,
}

/// A packet to send again after a reconnection, in its old order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resend {
    Publish(PacketId, Box<Delivery>),
    PubRel(PacketId),
}

impl SendWindow {
    /// A window for a client that takes `receive_maximum` unacknowledged messages at once.
    pub fn new(receive_maximum: u16) -> Self {
        Self { slots: VecDeque::new(), oldest: 1, on_wire: 0, to_resend: 0, receive_maximum }
    }

    /// Whether one more message may be sent now.
    pub fn has_room(&self) -> bool {
        self.to_resend == 0
            && self.on_wire < self.receive_maximum
            && self.slots.len() < IDS as usize
    }

    /// Messages on the wire and not yet acknowledged.
    pub fn in_flight(&self) -> u16 {
        self.on_wire
    }

    /// Takes the next packet identifier for a message of QoS 1 or 2; `None` when the window is full.
    /// What is `kept` is sent again after a reconnection.
    pub fn reserve(&mut self, qos: QoS, kept: Option<Box<Delivery>>) -> Option<PacketId> {
        debug_assert!(qos != QoS::AtMostOnce);
        if !self.has_room() {
            return None;
        }
        let phase = if qos == QoS::ExactlyOnce { Phase::AwaitPubRec } else { Phase::AwaitPubAck };
        let id = self.id_at(self.slots.len());
        self.slots.push_back(Slot { phase, kept });
        self.on_wire += 1;
        Some(id)
    }

    /// The client has a QoS 1 message.
    pub fn on_puback(&mut self, id: PacketId) -> Acked {
        self.finish(id, Phase::AwaitPubAck)
    }

    /// The client has a QoS 2 message (`accepted`), or refuses it. [`Acked::Expected`] and `accepted`
    /// ask for a PUBREL, also when it is a repetition.
    pub fn on_pubrec(&mut self, id: PacketId, accepted: bool) -> Acked {
        if !accepted {
            return self.finish(id, Phase::AwaitPubRec);
        }
        match self.sent_slot(id) {
            Some(slot) if matches!(slot.phase, Phase::AwaitPubRec | Phase::AwaitPubComp) => {
                slot.phase = Phase::AwaitPubComp;
                slot.kept = None;
                Acked::Expected
            }
            _ => Acked::Unknown,
        }
    }

    /// The exchange of a QoS 2 message is over.
    pub fn on_pubcomp(&mut self, id: PacketId) -> Acked {
        self.finish(id, Phase::AwaitPubComp)
    }

    /// A new connection takes the session over: all that is in flight has to be sent again, at most
    /// `receive_maximum` at a time.
    pub fn resume(&mut self, receive_maximum: u16) {
        self.receive_maximum = receive_maximum;
        self.on_wire = 0;
        self.to_resend = u32::try_from(self.slots.len()).expect("at most 65,535 slots");
    }

    /// Whether something is still to be sent again.
    pub(super) fn is_resending(&self) -> bool {
        self.to_resend > 0
    }

    /// The next packet to send again, if Receive Maximum allows one. The message stays kept.
    pub(super) fn next_resend(&mut self) -> Option<Resend> {
        while self.to_resend > 0 && self.on_wire < self.receive_maximum {
            let index = self.slots.len() - self.to_resend as usize;
            let id = self.id_at(index);
            self.to_resend -= 1;
            let slot = &mut self.slots[index];
            match (&slot.phase, &slot.kept) {
                (Phase::AwaitPubComp, _) => {
                    self.on_wire += 1;
                    return Some(Resend::PubRel(id));
                }
                (Phase::AwaitPubAck | Phase::AwaitPubRec, Some(kept)) => {
                    let kept = kept.clone();
                    self.on_wire += 1;
                    return Some(Resend::Publish(id, kept));
                }
                _ => {
                    slot.phase = Phase::Done;
                }
            }
        }
        self.drop_done();
        None
    }

    /// The kept messages that the client has not received, as far as is known.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Delivery> {
        self.slots
            .iter()
            .filter(|slot| matches!(slot.phase, Phase::AwaitPubAck | Phase::AwaitPubRec))
            .filter_map(|slot| slot.kept.as_deref())
    }

    /// Takes the kept messages for which `chosen` says so out of the window, oldest first, as if they
    /// were acknowledged. Only those not yet received by the client, as far as is known.
    pub fn take_kept(&mut self, mut chosen: impl FnMut(&Delivery) -> bool) -> Vec<Delivery> {
        let mut taken = Vec::new();
        let resent = self.slots.len() - self.to_resend as usize;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.phase, Phase::AwaitPubAck | Phase::AwaitPubRec)
                && slot.kept.as_deref().is_some_and(&mut chosen)
            {
                slot.phase = Phase::Done;
                taken.extend(slot.kept.take().map(|kept| *kept));
                if index < resent {
                    self.on_wire -= 1;
                }
            }
        }
        self.drop_done();
        taken
    }

    fn finish(&mut self, id: PacketId, expected: Phase) -> Acked {
        match self.sent_slot(id) {
            Some(slot) if slot.phase == expected => {
                slot.phase = Phase::Done;
                slot.kept = None;
                self.on_wire -= 1;
                self.drop_done();
                Acked::Expected
            }
            _ => Acked::Unknown,
        }
    }

    /// The slot of an identifier that was sent on this connection.
    fn sent_slot(&mut self, id: PacketId) -> Option<&mut Slot> {
        if id == 0 {
            return None;
        }
        let index = ((u32::from(id) + IDS - u32::from(self.oldest)) % IDS) as usize;
        if index + self.to_resend as usize >= self.slots.len() {
            return None;
        }
        self.slots.get_mut(index)
    }

    fn id_at(&self, index: usize) -> PacketId {
        let index = u32::try_from(index).expect("at most 65,535 slots");
        let id = (u32::from(self.oldest) - 1 + index) % IDS + 1;
        u16::try_from(id).expect("1 to 65,535 by the modulus")
    }

    fn drop_done(&mut self) {
        // Slots that are still to be resent are never `Done`: they leave by `next_resend`.
        while self.slots.len() > self.to_resend as usize
            && self.slots.front().is_some_and(|slot| slot.phase == Phase::Done)
        {
            self.slots.pop_front();
            self.oldest = if u32::from(self.oldest) == IDS { 1 } else { self.oldest + 1 };
        }
        if self.slots.is_empty() && self.slots.capacity() > 64 {
            self.slots = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests_support::delivery;

    #[test]
    fn identifiers_run_from_1_to_65535_and_start_over() {
        let mut window = SendWindow::new(10);
        for round in 0..140_000_u32 {
            let id = window.reserve(QoS::AtLeastOnce, None).unwrap();
            assert_eq!(u32::from(id), round % IDS + 1);
            assert_eq!(window.on_puback(id), Acked::Expected);
        }
    }

    #[test]
    fn receive_maximum_bounds_what_is_on_the_wire() {
        let mut window = SendWindow::new(2);
        let first = window.reserve(QoS::AtLeastOnce, None).unwrap();
        let second = window.reserve(QoS::ExactlyOnce, None).unwrap();
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), None);
        assert_eq!(window.on_puback(second), Acked::Unknown, "QoS 2 is not ended by PUBACK");
        assert_eq!(window.on_pubrec(second, true), Acked::Expected);
        assert_eq!(window.on_pubrec(second, true), Acked::Expected, "a repetition");
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), None, "until PUBCOMP");
        assert_eq!(window.on_pubcomp(second), Acked::Expected);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(3));
        assert_eq!(window.on_puback(first), Acked::Expected);
        assert_eq!(window.on_puback(first), Acked::Unknown);
        assert_eq!(window.on_puback(0), Acked::Unknown);
        assert_eq!(window.on_puback(99), Acked::Unknown);
    }

    #[test]
    fn a_refused_qos_2_message_frees_its_identifier() {
        let mut window = SendWindow::new(1);
        let id = window.reserve(QoS::ExactlyOnce, None).unwrap();
        assert_eq!(window.on_pubrec(id, false), Acked::Expected);
        assert!(window.has_room());
    }

    #[test]
    fn what_was_kept_is_resent_in_order_and_within_receive_maximum() {
        let mut window = SendWindow::new(10);
        for n in 0..4 {
            let qos = if n == 1 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
            window.reserve(qos, Some(Box::new(delivery(n, qos)))).unwrap();
        }
        window.on_pubrec(2, true);
        window.on_puback(3);
        window.resume(2);
        assert!(!window.has_room());
        assert_eq!(window.on_puback(1), Acked::Unknown, "not yet sent on this connection");
        let Some(Resend::Publish(1, first)) = window.next_resend() else { panic!() };
        assert_eq!(*first, delivery(0, QoS::AtLeastOnce));
        assert_eq!(window.next_resend(), Some(Resend::PubRel(2)));
        assert_eq!(window.next_resend(), None, "Receive Maximum is 2");
        assert_eq!(window.on_puback(1), Acked::Expected);
        assert!(matches!(window.next_resend(), Some(Resend::Publish(4, _))));
        assert_eq!(window.on_pubcomp(2), Acked::Expected);
        assert!(!window.is_resending());
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(5));
    }

    #[test]
    fn kept_messages_can_be_taken_for_another_client() {
        let mut window = SendWindow::new(10);
        for n in 0..3 {
            window.reserve(QoS::AtLeastOnce, Some(Box::new(delivery(n, QoS::AtLeastOnce))));
        }
        window.on_puback(2);
        let taken = window.take_kept(|_| true);
        assert_eq!(taken, [delivery(0, QoS::AtLeastOnce), delivery(2, QoS::AtLeastOnce)]);
        assert_eq!(window.in_flight(), 0);
        window.resume(10);
        assert_eq!(window.next_resend(), None);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(4));
    }
}
