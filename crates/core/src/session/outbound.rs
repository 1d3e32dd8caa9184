//! All packets on their way to one session's client, in the order in which they are sent.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::HashSet;

use mqtt_proto::QoS;

use super::send_window::{Recovered, Resend};
use super::{Acked, Delivery, Journal, SendWindow, Waiting, WindowLimits};
use crate::drop_reason::DropReason;
use crate::ids::{EntryNumber, PacketId, StoredAs};
use crate::message::Message;
use crate::queue::{Queue, QueueLimits};
use crate::session::{EntryRecord, Phase};
use crate::time::MonoTime;

/// The send window and the queue behind it.
///
/// Order: packets that have to be sent again come first, then retained messages for new subscriptions, then the queue,
/// then newly published messages. A caller with a new message may send it directly only while [`Outbound::is_idle`].
#[derive(Debug, Default)]
pub struct Outbound {
    window: SendWindow,
    /// Retained messages for new subscriptions. They do not count against the queue's limits: their bytes are shared
    /// with the retained store, and dropping some would give the subscriber a false picture of it. Boxed, because few
    /// sessions have any and an idle session should be small.
    replay: Option<Box<Replay>>,
    queue: Queue<Waiting>,
    /// Whether the session outlives its connection, so that messages are kept until acknowledged.
    survives: bool,
    /// The number of the last entry in the store.
    last_entry: u64,
}

/// Retained messages on their way to new subscriptions.
#[derive(Debug, Default)]
struct Replay(VecDeque<Delivery>);

/// The next packet to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A PUBLISH. It has a packet identifier if its QoS is 1 or 2.
    Publish {
        /// The delivery to send.
        delivery: Delivery,
        /// Its packet identifier.
        id: Option<PacketId>,
        /// Whether it was sent before (DUP).
        dup: bool,
    },
    /// A PUBREL, sent again.
    PubRel(PacketId),
    /// The next message is in the store only: [`Outbound::missing`] says what to fetch.
    Fetch,
    /// The next message was dropped, because the client is denied it.
    Denied,
}

impl Outbound {
    /// Creates the outbound state of a session that `survives` its connection, or ends with it.
    pub fn new(window: impl Into<WindowLimits>, survives: bool) -> Self {
        Self { window: SendWindow::new(window), survives, ..Self::default() }
    }

    /// Whether no packet waits ahead of a message that arrives now.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.replay.is_none() && !self.window.is_resending()
    }

    /// Whether messages of QoS 1 and 2 must be kept until acknowledged.
    pub fn survives(&self) -> bool {
        self.survives
    }

    /// Sets whether the session survives its connection.
    pub fn set_survives(&mut self, survives: bool) {
        self.survives = survives;
    }

    /// Number of messages that wait or are in flight: the load of this session.
    pub fn depth(&self) -> usize {
        self.replay.as_ref().map_or(0, |replay| replay.0.len())
            + self.queue.len()
            + usize::from(self.window.in_flight())
    }

    /// The messages that wait.
    pub fn queue(&self) -> &Queue<Waiting> {
        &self.queue
    }

    /// The messages in flight.
    pub fn window(&self) -> &SendWindow {
        &self.window
    }

    /// Whether one more message of QoS 1 or 2 may be sent now.
    pub fn has_room(&self) -> bool {
        self.window.has_room()
    }

    /// Whether [`Outbound::next`] would probably return a packet: one waits, and the window does not hold it back.
    pub fn has_next(&self) -> bool {
        let replayed = self.replay.as_ref().and_then(|replay| replay.0.front());
        let qos = replayed.map(|delivery| delivery.qos);
        let qos = qos.or_else(|| self.queue.front().map(Waiting::qos));
        self.window.is_resending()
            || qos.is_some_and(|qos| qos == QoS::AtMostOnce || self.window.has_room())
    }

    /// Assigns the entry number of a delivery that is to be stored.
    pub fn new_entry(&mut self) -> NonZeroU64 {
        self.last_entry += 1;
        NonZeroU64::new(self.last_entry).expect("it was raised")
    }

    /// Takes a packet identifier for a message that is sent at once; see [`SendWindow::reserve`].
    pub fn reserve(
        &mut self,
        qos: QoS,
        kept: Option<Box<Waiting>>,
        journal: &mut impl Journal,
    ) -> Option<PacketId> {
        let Some(kept) = kept else { return self.window.reserve(qos, None) };
        if !self.window.has_room() {
            return None;
        }
        let id = self.window.next_id();
        if let Some(delivery) = kept.here().filter(|delivery| delivery.stored.is_some()) {
            journal.put(delivery, Some(id));
        }
        self.window.reserve(qos, Some(kept))
    }

    /// Queues a message; in the store only, if it is stored and not `in_memory`. Calls `dropped` for each message that
    /// is dropped for it.
    pub fn enqueue(
        &mut self,
        delivery: Delivery,
        in_memory: bool,
        now: MonoTime,
        limits: &QueueLimits,
        journal: &mut impl Journal,
        mut dropped: impl FnMut(DropReason, &Waiting),
    ) {
        let stored = delivery.stored;
        // Noted before the message is in the queue, so that the removal of a message that makes room for it is noted
        // afterwards. If both changes concern the same entry, the store writes neither.
        if stored.is_some() {
            journal.put(&delivery, None);
        }
        let waiting = if in_memory { delivery.into() } else { Waiting::without_message(delivery) };
        self.queue.push(waiting, now, limits, |reason, lost| {
            if let Some(stored) = lost.stored() {
                journal.removed(stored, false);
            }
            dropped(reason, lost);
        });
    }

    /// Restores the stored entries of a session after a restart, in order.
    pub fn recover(&mut self, entries: impl IntoIterator<Item = (EntryNumber, EntryRecord)>) {
        let mut in_flight = Vec::new();
        for (number, record) in entries {
            let Some(entry) = NonZeroU64::new(number) else { continue };
            self.last_entry = self.last_entry.max(number);
            let stored = StoredAs { entry, message: record.message };
            match record.phase {
                Phase::Waiting => self.queue.restore(Waiting::recovered(stored, record)),
                Phase::Sent(id) => {
                    in_flight.push((id, Recovered::Sent(Waiting::recovered(stored, record))));
                }
                Phase::Released(id) => in_flight.push((id, Recovered::Released(stored))),
            }
        }
        self.window.recover(in_flight);
    }

    /// Queues a message that was in the queue before, regardless of the current limits.
    pub fn restore(&mut self, waiting: Waiting) {
        self.queue.restore(waiting);
    }

    /// The messages that must be fetched from the store before they can be sent, in the order in which they will be
    /// sent; at most `messages` and about `bytes`.
    pub fn missing(&self, messages: usize, bytes: usize) -> Vec<StoredAs> {
        let mut room = bytes;
        self.window
            .unsent()
            .chain(self.queue.iter())
            .take(messages)
            .take_while(|waiting| {
                let more = room > 0;
                room = room.saturating_sub(waiting.size());
                more
            })
            .filter_map(Waiting::away)
            .collect()
    }

    /// Supplies the messages that [`Outbound::missing`] returned. A message that could not be read is lost and passed
    /// to `dropped`, unless it has left the session in the meantime, which may be why it could not be read.
    pub fn supply(
        &mut self,
        fetched: &[(StoredAs, Option<Arc<Message>>)],
        journal: &mut impl Journal,
        mut dropped: impl FnMut(DropReason, &Waiting),
    ) {
        let mut lose = |stored: StoredAs, lost: &Waiting| {
            journal.removed(stored, false);
            dropped(DropReason::StoreUnreadable, lost);
        };
        for (stored, message) in fetched {
            if let Some(lost) = self.window.supply(*stored, message.as_ref()) {
                lose(*stored, &lost);
            }
        }
        let mut next = 0;
        for (stored, message) in fetched {
            let Some(message) = message else { continue };
            let is_it = |waiting: &Waiting| waiting.away() == Some(*stored);
            let supply = |waiting: &mut Waiting| waiting.supply(Arc::clone(message));
            // Both lists are in order: no message is looked at twice, unless one has left in the meantime.
            next = self.queue.change(next, is_it, supply).map_or(0, |place| place + 1);
        }
        let unreadable: Vec<_> = fetched
            .iter()
            .filter(|(_, message)| message.is_none())
            .map(|(stored, _)| *stored)
            .collect();
        if unreadable.is_empty() {
            return;
        }
        let is_lost = |waiting: &Waiting| waiting.away().is_some_and(|at| unreadable.contains(&at));
        for lost in self.queue.take(is_lost) {
            let stored = lost.away().expect("only such are chosen");
            lose(stored, &lost);
        }
    }

    /// Queues retained messages ahead of the queue. Those that are stored have already been passed to the journal.
    pub fn replay(&mut self, deliveries: Vec<Delivery>) {
        if !deliveries.is_empty() {
            self.replay.get_or_insert_default().0.extend(deliveries);
        }
    }

    /// Whether retained messages wait.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// Returns the next packet that may be sent now, if any. Calls `dropped` for each message that has expired or that the
    /// client is `denied`.
    pub fn next(
        &mut self,
        now: MonoTime,
        journal: &mut impl Journal,
        denied: impl Fn(&Delivery) -> bool,
        mut dropped: impl FnMut(DropReason, &Waiting),
    ) -> Option<Outgoing> {
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
                Some(Resend::Fetch) => return Some(Outgoing::Fetch),
                None if self.window.is_resending() => return None,
                None => {}
            }
        }
        self.drop_expired_replay(now, journal);
        if let Some(front) = self.replay.as_ref().and_then(|replay| replay.0.front()) {
            if front.qos != QoS::AtMostOnce && !self.window.has_room() {
                return None;
            }
            let delivery = self.next_replayed()?;
            return Some(match denied(&delivery) {
                true => deny(delivery, journal, dropped),
                false => self.send(delivery, journal),
            });
        }
        let front = self.queue.front()?;
        if front.qos() != QoS::AtMostOnce && !self.window.has_room() {
            return None;
        }
        let next = self.queue.pop_live(now, |reason, lost| {
            if let Some(stored) = lost.stored() {
                journal.removed(stored, false);
            }
            dropped(reason, lost);
        })?;
        // The front may have been an expired message of QoS 0; the message behind it must wait for the window.
        let must_wait = next.qos() != QoS::AtMostOnce && !self.window.has_room();
        match next {
            Waiting::Here(delivery) if denied(&delivery) => Some(deny(delivery, journal, dropped)),
            Waiting::Here(delivery) if !must_wait => Some(self.send(delivery, journal)),
            next => {
                self.queue.push_front(next);
                (!must_wait).then_some(Outgoing::Fetch)
            }
        }
    }

    /// Sends a message for which the window has room.
    fn send(&mut self, delivery: Delivery, journal: &mut impl Journal) -> Outgoing {
        if delivery.qos == QoS::AtMostOnce {
            return Outgoing::Publish { delivery, id: None, dup: false };
        }
        // A stored message is kept in any case: the end of its delivery must be noted.
        let keep = delivery.stored.is_some() || self.must_keep(delivery.shared.is_some());
        let kept = keep.then(|| Box::new(Waiting::Here(delivery.clone())));
        let id = self.window.reserve(delivery.qos, kept);
        if let (Some(id), true) = (id, delivery.stored.is_some()) {
            journal.sent(&delivery, id);
        }
        Outgoing::Publish { delivery, id, dup: false }
    }

    /// Drops replayed messages that have expired. They are no longer retained, so nothing is lost.
    fn drop_expired_replay(&mut self, now: MonoTime, journal: &mut impl Journal) {
        while let Some(replay) = &mut self.replay
            && replay.0.front().is_none_or(|front| front.message.is_expired(now))
        {
            match replay.0.pop_front() {
                Some(expired) => {
                    if let Some(stored) = expired.stored {
                        journal.removed(stored, false);
                    }
                }
                None => self.replay = None,
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
    pub fn on_puback(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.window.on_puback(id, journal)
    }

    /// See [`SendWindow::on_pubrec`].
    pub fn on_pubrec(&mut self, id: PacketId, accepted: bool, journal: &mut impl Journal) -> Acked {
        self.window.on_pubrec(id, accepted, journal)
    }

    /// See [`SendWindow::on_pubcomp`].
    pub fn on_pubcomp(&mut self, id: PacketId, journal: &mut impl Journal) -> Acked {
        self.window.on_pubcomp(id, journal)
    }

    /// Prepares for a connection that takes the session over.
    pub fn resume(&mut self, window: impl Into<WindowLimits>) {
        self.window.resume(window);
    }

    /// Changes the limits of the messages in flight. What is in flight beyond them stays.
    pub fn set_window(&mut self, window: WindowLimits) {
        self.window.set_limits(window);
    }

    /// The names of the shared subscriptions that have messages in flight or waiting here.
    pub fn shared(&self) -> HashSet<Arc<str>> {
        let all = self.window.kept().chain(self.queue.iter());
        all.filter_map(Waiting::shared).cloned().collect()
    }

    /// Takes, when the client has gone, the messages of shared subscriptions for which `has_other` finds another
    /// member: QoS 1 messages in flight and all waiting messages, but not QoS 2 messages in flight (MQTT 5 §4.8.2:
    /// those stay with the session they were sent to). Stored messages remain stored until the caller has their removal
    /// noted.
    pub fn take_shared(&mut self, mut has_other: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = self.window.take_kept(|kept| {
            kept.shared().is_some() && kept.qos() != QoS::ExactlyOnce && has_other(kept)
        });
        taken.extend(self.queue.take(|waiting| waiting.shared().is_some() && has_other(waiting)));
        taken
    }

    /// The records of all stored deliveries, and whether the client has received the message.
    pub fn stored(&self) -> impl Iterator<Item = (StoredAs, bool)> {
        let replayed = self.replay.iter().flat_map(|replay| replay.0.iter());
        let waiting = replayed.filter_map(|delivery| delivery.stored);
        let waiting = waiting.chain(self.queue.iter().filter_map(Waiting::stored));
        self.window.stored().chain(waiting.map(|stored| (stored, false)))
    }

    /// Returns whether a message of QoS 1 or 2 must be kept until it is acknowledged. `shared` says that the message
    /// came through a shared subscription.
    pub fn must_keep(&self, shared: bool) -> bool {
        self.survives || shared
    }
}

fn deny(
    delivery: Delivery,
    journal: &mut impl Journal,
    mut dropped: impl FnMut(DropReason, &Waiting),
) -> Outgoing {
    if let Some(stored) = delivery.stored {
        journal.removed(stored, false);
    }
    dropped(DropReason::NotAllowed, &Waiting::Here(delivery));
    Outgoing::Denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Overflow, Room};
    use crate::session::tests_support::{delivery, expiring, shared};

    const LIMITS: QueueLimits = QueueLimits {
        messages: 9,
        bytes: 9_999,
        overflow: Overflow::DropNewest,
        tenant: Room::UNBOUNDED,
        user_bytes: usize::MAX,
    };
    const NOW: MonoTime = MonoTime::from_millis(100);

    fn outbound(receive_maximum: u16, waiting: Vec<Delivery>) -> Outbound {
        let mut outbound = Outbound::new(receive_maximum, true);
        for delivery in waiting {
            outbound.enqueue(delivery, true, NOW, &LIMITS, &mut (), |_, _| {
                panic!("no limit is reached")
            });
        }
        outbound
    }

    fn next(outbound: &mut Outbound) -> Option<(u8, Option<PacketId>, bool)> {
        match outbound.next(NOW, &mut (), |_| false, |_, _| {})? {
            Outgoing::Publish { delivery, id, dup } => {
                Some((delivery.message.publication().payload[0], id, dup))
            }
            Outgoing::PubRel(id) => Some((255, Some(id), false)),
            Outgoing::Fetch | Outgoing::Denied => panic!("everything is here, and allowed"),
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
        outbound.on_puback(1, &mut ());
        assert_eq!(next(&mut outbound), Some((2, Some(2), false)));
        assert!(outbound.is_idle());
        assert_eq!(outbound.depth(), 1);
    }

    #[test]
    fn an_expired_front_does_not_let_a_message_past_the_window() {
        let mut outbound = outbound(1, vec![expiring(50), delivery(1, QoS::AtLeastOnce)]);
        outbound.reserve(QoS::AtLeastOnce, None, &mut ()).unwrap();
        assert_eq!(next(&mut outbound), None);
        assert_eq!(outbound.queue().len(), 1);
        outbound.on_puback(1, &mut ());
        assert_eq!(next(&mut outbound), Some((1, Some(2), false)));
    }

    #[test]
    fn a_reconnection_sends_again_before_anything_new() {
        let mut outbound =
            outbound(9, vec![delivery(0, QoS::AtLeastOnce), delivery(1, QoS::ExactlyOnce)]);
        next(&mut outbound);
        next(&mut outbound);
        outbound.on_pubrec(2, true, &mut ());
        outbound.resume(9);
        assert!(!outbound.is_idle());
        outbound.enqueue(
            delivery(2, QoS::AtLeastOnce),
            true,
            NOW,
            &LIMITS,
            &mut (),
            |_, _| panic!(),
        );
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

    /// Records which entries are removed.
    #[derive(Default)]
    struct Removed(Vec<u64>);

    impl Journal for Removed {
        fn put(&mut self, _: &Delivery, _: Option<PacketId>) {}
        fn sent(&mut self, _: &Delivery, _: PacketId) {}
        fn released(&mut self, _: StoredAs, _: PacketId) {}
        fn removed(&mut self, stored: StoredAs, _: bool) {
            self.0.push(stored.entry.get());
        }
    }

    #[test]
    fn what_leaves_while_it_is_fetched_is_removed_once() {
        let limits = QueueLimits { messages: 2, overflow: Overflow::DropOldest, ..LIMITS };
        let (mut outbound, mut journal) = (Outbound::new(1, true), Removed::default());
        let mut lost = Vec::new();
        let wait = |outbound: &mut Outbound, journal: &mut Removed| {
            let mut delivery = delivery(0, QoS::AtLeastOnce);
            delivery.stored = Some(StoredAs { entry: outbound.new_entry(), message: 7 });
            outbound.enqueue(delivery, false, NOW, &limits, journal, |_, _| {});
        };
        wait(&mut outbound, &mut journal);
        wait(&mut outbound, &mut journal);
        let missing = outbound.missing(9, 9_999);
        // The first message is dropped to make room, and is not found in the store any more.
        wait(&mut outbound, &mut journal);
        let fetched: Vec<_> = missing.into_iter().map(|stored| (stored, None)).collect();
        outbound.supply(&fetched, &mut journal, |reason, waiting| {
            lost.push((reason, waiting.stored().unwrap().entry.get()));
        });
        assert_eq!(lost, [(DropReason::StoreUnreadable, 2)]);
        assert_eq!(journal.0, [1, 2]);
        assert_eq!(outbound.queue().len(), 1);
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
        let names: HashSet<_> = shared(0, QoS::AtLeastOnce).shared.into_iter().collect();
        assert_eq!(outbound.shared(), names);
        let taken = outbound.take_shared(|_| true);
        assert_eq!(taken, [0, 2].map(|n| shared(n, QoS::AtLeastOnce).into()));
        outbound.resume(2);
        assert_eq!(next(&mut outbound), Some((1, Some(2), true)), "QoS 2 stays");
        assert_eq!(next(&mut outbound), Some((3, Some(3), false)));
    }
}
