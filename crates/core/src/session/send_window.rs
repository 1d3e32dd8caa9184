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
use crate::ids::{PacketId, StoredAs};
use crate::message::Message;

impl Default for SendWindow {
    /// Creates a window without room.
    fn default() -> Self {
        Self::new(0)
    }
}

const IDS: u32 = 65_535;

/// Messages sent and not yet acknowledged, at most Receive Maximum of them on the wire.
#[derive(Debug)]
pub struct SendWindow {
    slots: VecDeque<Slot>,
    /// The identifier of `slots[0]`, or of the next message if there are no slots.
    oldest: PacketId,
    /// Number of slots that are not `Done` and were sent on this connection; Receive Maximum bounds it.
    on_wire: u16,
    /// Number of slots at the back that were sent on an earlier connection and not yet on this one.
    to_resend: u32,
    /// Bytes of the kept messages that are in memory.
    kept_bytes: usize,
    limits: WindowLimits,
}

/// Limits of the messages in flight to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Maximum number of messages: at most the client's Receive Maximum.
    pub messages: u16,
    /// Maximum number of bytes of messages that must be kept until they are acknowledged. A message is sent while at
    /// least one byte of the limit is free, however large the message is.
    pub kept_bytes: usize,
}

impl From<u16> for WindowLimits {
    /// Creates limits for the number of messages only.
    fn from(messages: u16) -> Self {
        Self { messages, kept_bytes: usize::MAX }
    }
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    kept: Kept,
}

/// The part of a message in flight that is kept.
#[derive(Debug, Default)]
enum Kept {
    /// Nothing: the message is not sent again.
    #[default]
    Nothing,
    /// The message, which must be sent again if the connection is lost.
    Message(Box<Waiting>),
    /// The record of the delivery. The client has the message; only the end of the exchange must still be noted.
    Released(Box<StoredAs>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitPubAck,
    AwaitPubRec,
    AwaitPubComp,
    Done,
}

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// The acknowledgement was expected.
    Expected,
    /// No such packet identifier is in flight.
    Unknown,
    /// The message with this packet identifier must be answered with another packet.
    OutOfTurn,
}

/// A packet to send again after a reconnection, in its old order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resend {
    Publish(PacketId, Box<Delivery>),
    PubRel(PacketId),
    /// The message has to be fetched from the store first.
    Fetch,
}

/// A message that was in flight before a restart.
#[derive(Debug)]
pub(super) enum Recovered {
    /// Its PUBLISH may have been sent.
    Sent(Waiting),
    /// Its PUBREC was received.
    Released(StoredAs),
}

impl SendWindow {
    /// Creates a window with the limits of a client.
    pub fn new(limits: impl Into<WindowLimits>) -> Self {
        Self {
            slots: VecDeque::new(),
            oldest: 1,
            on_wire: 0,
            to_resend: 0,
            kept_bytes: 0,
            limits: limits.into(),
        }
    }

    /// Whether one more message may be sent now.
    pub fn has_room(&self) -> bool {
        self.to_resend == 0 && self.takes_more() && self.slots.len() < IDS as usize
    }

    /// Bytes of the kept messages that are in memory.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn takes_more(&self) -> bool {
        self.on_wire < self.limits.messages && self.kept_bytes < self.limits.kept_bytes
    }

    /// The identifier of the next message.
    pub(super) fn next_id(&self) -> PacketId {
        self.id_at(self.slots.len())
    }

    /// Number of messages on the wire and not yet acknowledged.
    pub fn in_flight(&self) -> u16 {
        self.on_wire
    }

    /// Takes the next packet identifier for a message of QoS 1 or 2; returns `None` if the window is full. A message
    /// that is `kept` is sent again after a reconnection.
    pub fn reserve(&mut self, qos: QoS, kept: Option<Box<Waiting>>) -> Option<PacketId> {
        debug_assert!(qos != QoS::AtMostOnce);
        if !self.has_room() {
            return None;
        }
        let phase = if qos == QoS::ExactlyOnce { Phase::AwaitPubRec } else { Phase::AwaitPubAck };
        let id = self.id_at(self.slots.len());
        let kept = kept.map_or(Kept::Nothing, Kept::Message);
        self.kept_bytes += kept.bytes();
        self.slots.push_back(Slot { phase, kept });
        self.on_wire += 1;
        Some(id)
    }

    /// Restores the messages that were in flight before a restart. The window must be empty.
    pub(super) fn recover(&mut self, mut in_flight: Vec<(PacketId, Recovered)>) {
        debug_assert!(self.slots.is_empty());
        in_flight.sort_by_key(|(id, _)| *id);
        in_flight.dedup_by_key(|(id, _)| *id);
        // Identifiers wrap around after 65,535; the oldest one comes after the largest gap.
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
        // None of the messages is on the wire.
        self.to_resend = u32::try_from(self.slots.len()).expect("at most 65,535 slots");
    }

    /// Handles PUBACK: the client has a QoS 1 message.
    pub fn on_puback(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.finish(id, Phase::AwaitPubAck, journal)
    }

    /// Handles PUBREC: the client has a QoS 2 message (`accepted`), or refuses it. If `accepted` and the result is
    /// [`Acked::Expected`], a PUBREL must be sent, even if the PUBREC is a repetition.
    pub fn on_pubrec(&mut self, id: PacketId, accepted: bool, journal: &mut impl Journal) -> Acked {
        if !accepted {
            return self.finish(id, Phase::AwaitPubRec, journal);
        }
        match self.sent_slot(id) {
            Some(slot) if slot.phase == Phase::AwaitPubComp => Acked::Expected,
            Some(slot) if slot.phase == Phase::AwaitPubRec => {
                slot.phase = Phase::AwaitPubComp;
                let kept = std::mem::take(&mut slot.kept);
                if let Some(stored) = kept.stored() {
                    journal.released(stored, id);
                    slot.kept = Kept::Released(Box::new(stored));
                }
                self.kept_bytes -= kept.bytes();
                Acked::Expected
            }
            Some(slot) if slot.phase != Phase::Done => Acked::OutOfTurn,
            _ => Acked::Unknown,
        }
    }

    /// Handles PUBCOMP: the exchange of a QoS 2 message is complete.
    pub fn on_pubcomp(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.finish(id, Phase::AwaitPubComp, journal)
    }

    /// Prepares for a new connection that takes the session over: all messages in flight must be sent again, within its
    /// limits.
    pub fn resume(&mut self, limits: impl Into<WindowLimits>) {
        self.limits = limits.into();
        self.on_wire = 0;
        self.to_resend = u32::try_from(self.slots.len()).expect("at most 65,535 slots");
    }

    /// Changes the limits. What is in flight beyond them stays.
    pub fn set_limits(&mut self, limits: WindowLimits) {
        self.limits = limits;
    }

    /// Whether packets are still to be sent again.
    pub(super) fn is_resending(&self) -> bool {
        self.to_resend > 0
    }

    /// Returns the next packet to send again, if Receive Maximum allows one. The message stays kept.
    pub(super) fn next_resend(&mut self) -> Option<Resend> {
        while self.to_resend > 0 && self.on_wire < self.limits.messages {
            let index = self.slots.len() - self.to_resend as usize;
            let id = self.id_at(index);
            let slot = &mut self.slots[index];
            let resend = match (&slot.phase, &slot.kept) {
                (Phase::AwaitPubComp, _) => Some(Resend::PubRel(id)),
                (Phase::AwaitPubAck | Phase::AwaitPubRec, Kept::Message(kept)) => match &**kept {
                    Waiting::Here(delivery) => {
                        Some(Resend::Publish(id, Box::new(delivery.clone())))
                    }
                    // A fetched message takes memory until it is acknowledged.
                    Waiting::Away(_)
                        if self.on_wire > 0 && self.kept_bytes >= self.limits.kept_bytes =>
                    {
                        return None;
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

    /// Supplies a kept message that is to be sent again with the message fetched for it. If there is none, the message
    /// cannot be sent again; it is removed and returned.
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
            self.kept_bytes += message.size();
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

    /// The records of stored messages in flight, and whether the client has received the message.
    pub(super) fn stored(&self) -> impl Iterator<Item = (StoredAs, bool)> {
        self.slots.iter().filter_map(|slot| {
            slot.kept.stored().map(|stored| (stored, matches!(slot.kept, Kept::Released(_))))
        })
    }

    /// Takes the kept messages that `chosen` accepts out of the window, oldest first, as if they were acknowledged.
    /// Considers only messages that the client has not received, as far as is known.
    pub(super) fn take_kept(&mut self, mut chosen: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::new();
        let resent = self.slots.len() - self.to_resend as usize;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.phase, Phase::AwaitPubAck | Phase::AwaitPubRec)
                && slot.kept.message().is_some_and(&mut chosen)
            {
                slot.phase = Phase::Done;
                self.kept_bytes -= slot.kept.bytes();
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
                self.kept_bytes -= kept.bytes();
                self.on_wire -= 1;
                self.drop_done();
                Acked::Expected
            }
            Some(slot) if slot.phase != Phase::Done => Acked::OutOfTurn,
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

    /// Bytes of the message, if it is kept in memory.
    fn bytes(&self) -> usize {
        self.message().and_then(Waiting::here).map_or(0, |here| here.message.size())
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
        for answer in [SendWindow::on_puback, SendWindow::on_pubcomp] {
            let acked = answer(&mut window, second, &mut ());
            assert_eq!(acked, Acked::OutOfTurn, "QoS 2 asks for a PUBREC first");
        }
        assert_eq!(window.on_pubrec(first, true, &mut ()), Acked::OutOfTurn);
        assert_eq!(window.on_pubrec(first, false, &mut ()), Acked::OutOfTurn);
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
    fn what_has_to_be_kept_is_bounded_by_bytes() {
        let bytes = delivery(0, QoS::AtLeastOnce).message.size();
        let mut window = SendWindow::new(WindowLimits { messages: 10, kept_bytes: 2 * bytes });
        let reserve = |window: &mut SendWindow, qos| {
            window.reserve(qos, Some(Box::new(delivery(0, qos).into())))
        };
        assert_eq!(reserve(&mut window, QoS::AtLeastOnce), Some(1));
        assert_eq!(reserve(&mut window, QoS::ExactlyOnce), Some(2));
        assert_eq!(reserve(&mut window, QoS::AtLeastOnce), None);
        assert_eq!(window.on_pubrec(2, true, &mut ()), Acked::Expected);
        assert_eq!(window.kept_bytes(), bytes, "the client has the message");
        assert_eq!(reserve(&mut window, QoS::AtLeastOnce), Some(3));
        window.resume(WindowLimits { messages: 10, kept_bytes: 1 });
        while window.next_resend().is_some() {}
        assert!(!window.is_resending(), "what is kept already is sent again");
        assert_eq!(reserve(&mut window, QoS::AtLeastOnce), None);
        for id in [1, 3] {
            assert_eq!(window.on_puback(id, &mut ()), Acked::Expected);
        }
        assert_eq!(window.kept_bytes(), 0);
        assert_eq!(reserve(&mut window, QoS::AtLeastOnce), Some(4));
        assert_eq!(window.take_kept(|_| true).len(), 1);
        assert_eq!(window.kept_bytes(), 0);
    }

    #[test]
    fn limits_may_change_while_messages_are_in_flight() {
        let limits = |messages| WindowLimits { messages, kept_bytes: usize::MAX };
        let mut window = SendWindow::new(2);
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(1));
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(2));
        window.set_limits(limits(3));
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(3));
        window.set_limits(limits(1));
        for id in [1, 2, 3] {
            assert_eq!(window.reserve(QoS::AtLeastOnce, None), None);
            assert_eq!(window.on_puback(id, &mut ()), Acked::Expected);
        }
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), Some(4));
        assert_eq!(window.reserve(QoS::AtLeastOnce, None), None);
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
        // The identifiers have wrapped around while the messages were in flight: 65,534 is older than 2.
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

    #[test]
    fn what_was_in_flight_before_a_restart_can_be_taken_before_its_client_is_back() {
        let stored = StoredAs { entry: 1.try_into().unwrap(), message: 1 };
        let sent = |n: u8| {
            let delivery = Delivery { stored: Some(stored), ..delivery(n, QoS::AtLeastOnce) };
            Recovered::Sent(Waiting::without_message(delivery))
        };
        let mut window = SendWindow::default();
        window.recover(vec![(1, sent(1)), (2, Recovered::Released(stored)), (3, sent(3))]);
        assert_eq!(window.take_kept(|_| true).len(), 2);
        window.resume(2);
        assert_eq!(window.next_resend(), Some(Resend::PubRel(2)));
        assert_eq!(window.next_resend(), None);
        assert!(window.has_room());
    }
}
