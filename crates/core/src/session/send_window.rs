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
use std::sync::Arc;

use mqtt_proto::QoS;

use super::{Delivery, Journal, Waiting};
use crate::durable::StoredAs;
use crate::message::Message;

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
    kept: Kept,
}

/// What is kept of a message in flight.
#[derive(Debug, Default)]
enum Kept {
    /// Nothing: it is not sent again.
    #[default]
    Nothing,
    /// The message, which must be sent again when the connection is lost.
    Message(Box<Waiting>),
    /// The client has the message. This is where the end of the exchange is to be noted.
    Released(Box<StoredAs>),
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
    /// The message has to be fetched first.
    Fetch,
}

/// A message that was in flight when the broker ended.
#[derive(Debug)]
pub(super) enum Recovered {
    /// Its PUBLISH was sent, perhaps.
    Sent(Waiting),
    /// Its PUBREC had come.
    Released(StoredAs),
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

    /// The identifier that the next message gets.
    pub(super) fn next_id(&self) -> PacketId {
        self.id_at(self.slots.len())
    }

    /// Messages on the wire and not yet acknowledged.
    pub fn in_flight(&self) -> u16 {
        self.on_wire
    }

    /// Takes the next packet identifier for a message of QoS 1 or 2; `None` when the window is full.
    /// What is `kept` is sent again after a reconnection.
    pub fn reserve(&mut self, qos: QoS, kept: Option<Box<Waiting>>) -> Option<PacketId> {
        debug_assert!(qos != QoS::AtMostOnce);
        if !self.has_room() {
            return None;
        }
        let phase = if qos == QoS::ExactlyOnce { Phase::AwaitPubRec } else { Phase::AwaitPubAck };
        let id = self.id_at(self.slots.len());
        let kept = kept.map_or(Kept::Nothing, Kept::Message);
        self.slots.push_back(Slot { phase, kept });
        self.on_wire += 1;
        Some(id)
    }

    /// Puts back what was in flight when the broker ended, into a window that is empty.
    pub(super) fn recover(&mut self, mut in_flight: Vec<(PacketId, Recovered)>) {
        debug_assert!(self.slots.is_empty());
        in_flight.sort_by_key(|(id, _)| *id);
        in_flight.dedup_by_key(|(id, _)| *id);
        // Identifiers run in a circle; the oldest one is behind the largest gap.
        let gap = |index: usize| {
            let before = if index == 0 { in_flight.len() } else { index } - 1;
            (u32::from(in_flight[index].0) + IDS - 1 - u32::from(in_flight[before].0)) % IDS
        };
        let Some(first) = (0..in_flight.len()).max_by_key(|index| gap(*index)) else { return };
        in_flight.rotate_left(first);
        self.oldest = in_flight[0].0;
        for (id, recovered) in in_flight {
            while self.id_at(self.slots.len()) != id {
                self.slots.push_back(Slot { phase: Phase::Done, kept: Kept::Nothing });
            }
            let (phase, kept) = match recovered {
                Recovered::Released(stored) => {
                    (Phase::AwaitPubComp, Kept::Released(Box::new(stored)))
                }
                Recovered::Sent(waiting) if waiting.qos() == QoS::ExactlyOnce => {
                    (Phase::AwaitPubRec, Kept::Message(Box::new(waiting)))
                }
                Recovered::Sent(waiting) => (Phase::AwaitPubAck, Kept::Message(Box::new(waiting))),
            };
            self.slots.push_back(Slot { phase, kept });
        }
    }

    /// The client has a QoS 1 message.
    pub fn on_puback(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.finish(id, Phase::AwaitPubAck, journal)
    }

    /// The client has a QoS 2 message (`accepted`), or refuses it. [`Acked::Expected`] and `accepted`
    /// ask for a PUBREL, also when it is a repetition.
    pub fn on_pubrec(&mut self, id: PacketId, accepted: bool, journal: &mut impl Journal) -> Acked {
        if !accepted {
            return self.finish(id, Phase::AwaitPubRec, journal);
        }
        match self.sent_slot(id) {
            Some(slot) if slot.phase == Phase::AwaitPubComp => Acked::Expected,
            Some(slot) if slot.phase == Phase::AwaitPubRec => {
                slot.phase = Phase::AwaitPubComp;
                slot.kept = match slot.kept.stored() {
                    Some(stored) => {
                        journal.released(stored, id);
                        Kept::Released(Box::new(stored))
                    }
                    None => Kept::Nothing,
                };
                Acked::Expected
            }
            _ => Acked::Unknown,
        }
    }

    /// The exchange of a QoS 2 message is over.
    pub fn on_pubcomp(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.finish(id, Phase::AwaitPubComp, journal)
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
            let slot = &mut self.slots[index];
            let resend = match (&slot.phase, &slot.kept) {
                (Phase::AwaitPubComp, _) => Some(Resend::PubRel(id)),
                (Phase::AwaitPubAck | Phase::AwaitPubRec, Kept::Message(kept)) => match &**kept {
                    Waiting::Here(delivery) => {
                        Some(Resend::Publish(id, Box::new(delivery.clone())))
                    }
                    Waiting::Away(_) => return Some(Resend::Fetch),
                },
                _ => {
                    slot.phase = Phase::Done;
                    None
                }
            };
            self.to_resend -= 1;
            if resend.is_some() {
                self.on_wire += 1;
                return resend;
            }
        }
        self.drop_done();
        None
    }

    /// The kept messages that are still to be sent again, in order.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Waiting> {
        let resent = self.slots.len() - self.to_resend as usize;
        self.slots.range(resent..).filter_map(|slot| slot.kept.message())
    }

    /// Gives a kept message that is to be sent again what was fetched for it. Without a message it cannot
    /// be sent again, and is answered.
    pub(super) fn supply(
        &mut self,
        stored: StoredAs,
        message: Option<&Arc<Message>>,
    ) -> Option<Waiting> {
        let resent = self.slots.len() - self.to_resend as usize;
        let slot = self
            .slots
            .range_mut(resent..)
            .find(|slot| slot.kept.message().is_some_and(|kept| kept.away() == Some(stored)))?;
        if let (Kept::Message(kept), Some(message)) = (&mut slot.kept, message) {
            kept.supply(Arc::clone(message));
            return None;
        }
        match std::mem::take(&mut slot.kept) {
            Kept::Message(lost) => Some(*lost),
            Kept::Nothing | Kept::Released(_) => None,
        }
    }

    /// The kept messages that the client has not received, as far as is known.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Waiting> {
        self.slots
            .iter()
            .filter(|slot| matches!(slot.phase, Phase::AwaitPubAck | Phase::AwaitPubRec))
            .filter_map(|slot| slot.kept.message())
    }

    /// Where what is in flight is stored, and whether the client has it.
    pub(super) fn stored(&self) -> impl Iterator<Item = (StoredAs, bool)> {
        self.slots.iter().filter_map(|slot| {
            slot.kept.stored().map(|stored| (stored, matches!(slot.kept, Kept::Released(_))))
        })
    }

    /// Takes the kept messages for which `chosen` says so out of the window, oldest first, as if they
    /// were acknowledged. Only those not yet received by the client, as far as is known.
    pub(super) fn take_kept(&mut self, mut chosen: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::new();
        let resent = self.slots.len() - self.to_resend as usize;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.phase, Phase::AwaitPubAck | Phase::AwaitPubRec)
                && slot.kept.message().is_some_and(&mut chosen)
            {
                slot.phase = Phase::Done;
                if let Kept::Message(kept) = std::mem::take(&mut slot.kept) {
                    taken.push(*kept);
                }
                if index < resent {
                    self.on_wire -= 1;
                }
            }
        }
        self.drop_done();
        taken
    }

    fn finish(&mut self, id: PacketId, expected: Phase, journal: &mut impl Journal) -> Acked {
        match self.sent_slot(id) {
            Some(slot) if slot.phase == expected => {
                slot.phase = Phase::Done;
                let kept = std::mem::take(&mut slot.kept);
                if let Some(stored) = kept.stored() {
                    journal.removed(stored, matches!(kept, Kept::Released(_)));
                }
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

impl Kept {
    fn message(&self) -> Option<&Waiting> {
        match self {
            Self::Message(kept) => Some(kept),
            Self::Nothing | Self::Released(_) => None,
        }
    }

    fn stored(&self) -> Option<StoredAs> {
        match self {
            Self::Nothing => None,
            Self::Message(kept) => kept.stored(),
            Self::Released(stored) => Some(**stored),
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
            assert_eq!(window.on_puback(id, &mut ()), Acked::Expected);
        }
    }

    #[test]
    fn receive_maximum_bounds_what_is_on_the_wire() {
        let mut window = SendWindow::new(2);
        let first = window.reserve(QoS::AtLeastOnce, None).unwrap();
        let second = window.reserve(QoS::ExactlyOnce, None).unwrap();
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), None);
        assert_eq!(
            window.on_puback(second, &mut ()),
            Acked::Unknown,
            "QoS 2 is not ended by PUBACK"
        );
        assert_eq!(window.on_pubrec(second, true, &mut ()), Acked::Expected);
        assert_eq!(window.on_pubrec(second, true, &mut ()), Acked::Expected, "a repetition");
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), None, "until PUBCOMP");
        assert_eq!(window.on_pubcomp(second, &mut ()), Acked::Expected);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(3));
        assert_eq!(window.on_puback(first, &mut ()), Acked::Expected);
        assert_eq!(window.on_puback(first, &mut ()), Acked::Unknown);
        assert_eq!(window.on_puback(0, &mut ()), Acked::Unknown);
        assert_eq!(window.on_puback(99, &mut ()), Acked::Unknown);
    }

    #[test]
    fn a_refused_qos_2_message_frees_its_identifier() {
        let mut window = SendWindow::new(1);
        let id = window.reserve(QoS::ExactlyOnce, None).unwrap();
        assert_eq!(window.on_pubrec(id, false, &mut ()), Acked::Expected);
        assert!(window.has_room());
    }

    #[test]
    fn what_was_kept_is_resent_in_order_and_within_receive_maximum() {
        let mut window = SendWindow::new(10);
        for n in 0..4 {
            let qos = if n == 1 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
            window.reserve(qos, Some(Box::new(delivery(n, qos).into()))).unwrap();
        }
        window.on_pubrec(2, true, &mut ());
        window.on_puback(3, &mut ());
        window.resume(2);
        assert!(!window.has_room());
        assert_eq!(window.on_puback(1, &mut ()), Acked::Unknown, "not yet sent on this connection");
        let Some(Resend::Publish(1, first)) = window.next_resend() else { panic!() };
        assert_eq!(*first, delivery(0, QoS::AtLeastOnce));
        assert_eq!(window.next_resend(), Some(Resend::PubRel(2)));
        assert_eq!(window.next_resend(), None, "Receive Maximum is 2");
        assert_eq!(window.on_puback(1, &mut ()), Acked::Expected);
        assert!(matches!(window.next_resend(), Some(Resend::Publish(4, _))));
        assert_eq!(window.on_pubcomp(2, &mut ()), Acked::Expected);
        assert!(!window.is_resending());
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(5));
    }

    #[test]
    fn kept_messages_can_be_taken_for_another_client() {
        let mut window = SendWindow::new(10);
        for n in 0..3 {
            window.reserve(QoS::AtLeastOnce, Some(Box::new(delivery(n, QoS::AtLeastOnce).into())));
        }
        window.on_puback(2, &mut ());
        let taken = window.take_kept(|_| true);
        assert_eq!(taken, [0, 2].map(|n| Waiting::Here(delivery(n, QoS::AtLeastOnce))));
        assert_eq!(window.in_flight(), 0);
        window.resume(10);
        assert_eq!(window.next_resend(), None);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(4));
    }

    #[test]
    fn what_was_in_flight_keeps_its_identifiers_over_a_restart() {
        let stored = |entry: u64| StoredAs { entry: entry.try_into().unwrap(), message: entry };
        let sent = |n: u8| Recovered::Sent(delivery(n, QoS::AtLeastOnce).into());
        let mut window = SendWindow::default();
        // The circle was closed while they were in flight: 65,534 is older than 2.
        window.recover(vec![(2, sent(3)), (65_534, sent(1)), (1, Recovered::Released(stored(2)))]);
        window.resume(10);
        let Some(Resend::Publish(65_534, first)) = window.next_resend() else { panic!() };
        assert_eq!(*first, delivery(1, QoS::AtLeastOnce));
        assert_eq!(window.next_resend(), Some(Resend::PubRel(1)));
        assert!(matches!(window.next_resend(), Some(Resend::Publish(2, _))));
        assert_eq!(window.next_resend(), None);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(3));
        assert_eq!(window.in_flight(), 4);
    }
}
