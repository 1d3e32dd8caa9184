//! Delivery of messages to one session: each message is sent, waits, or is dropped and counted.

use std::ops::Range;
use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::ids::StoredAs;
use barid_core::message::Message;
use barid_core::queue::Overflow;
use barid_core::session::{Acked, Delivery, Waiting};
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{PacketType, QoS, Version};

use super::Session;
use super::outlet::Outlet;
use super::writing::{InHand, NOTHING, Stint, direct};
use crate::durable::{Commits, SessionJournal};
use crate::encode::PublishFrame;
use crate::faults::{IfHolds as _, Rule};
use crate::offer::{Offer, Writes};
use crate::packets::{Packets, SHARED_FROM};
use crate::run::{Had, Messages, PacketForm};
use crate::wire::Wire;
use crate::worker::Worker;

/// Number of encoded bytes that may wait for one client. Beyond, messages wait in the queue, where the
/// tenant's limits and message expiry apply.
pub(super) const UNSENT_MAX: usize = 256 * 1024;

/// Number of encoded bytes that are written without waiting for more.
const WORTH_A_WRITE: usize = 16 * 1024;

/// The work that remains after an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offered {
    /// No work.
    Done,
    /// A call of [`SessionRef::flush`](super::SessionRef::flush), when all messages have been offered.
    FlushLater,
    /// The session does not take messages. A shared subscription must choose another member.
    Gone,
}

/// The work that remains for the thread that offers messages.
enum Taken {
    /// No work, or work that its caller does later.
    Offered(Offered),
    /// Offering the messages one by one: the session has some of them already.
    OneByOne,
    /// Writing: the thread has become the writer of `epoch`. It writes the messages themselves in `form`, or
    /// the unsent bytes if that is `None`.
    ToWrite { epoch: u32, wire: Arc<dyn Wire>, form: Option<PacketForm> },
}

impl From<Offered> for Taken {
    fn from(offered: Offered) -> Self {
        Self::Offered(offered)
    }
}

impl Session {
    /// Delivers messages: writes them, appends them to the unsent bytes, queues them, or drops and counts
    /// them.
    pub fn offer(
        &self,
        worker: &Worker,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
    ) -> Offered {
        let taken = self.with(|outlet| {
            let taken = self.take(worker, outlet, messages, offer);
            outlet.rest();
            taken
        });
        match taken {
            Taken::Offered(offered) => return offered,
            Taken::OneByOne => {
                let one = |index| Offer { range: index..index + 1, ..offer.clone() };
                let offers =
                    offer.range.clone().map(|index| self.offer(worker, messages, &one(index)));
                return offers.max().unwrap_or(Offered::Done);
            }
            Taken::ToWrite { epoch, wire, form: Some(form) } => {
                let packets = RunInHand { messages, form };
                self.pump(worker, epoch, packets, Stint::SHORT, direct(&*wire));
            }
            Taken::ToWrite { epoch, wire, form: None } => {
                self.pump(worker, epoch, NOTHING, Stint::SHORT, direct(&*wire));
            }
        }
        Offered::Done
    }

    /// Takes messages into the outlet, except those that are to be written at once.
    #[inline(always)]
    fn take(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
    ) -> Taken {
        // Asked under the lock: a session that ends takes its messages out, for other members, after it is marked.
        if self.has_ended() {
            return Offered::Gone.into();
        }
        if self.is_muted() {
            outlet.link.iter().for_each(|link| link.owner.missed(offer.range.len()));
            return Offered::Done.into();
        }
        let stores = outlet.stores(messages, offer.qos);
        if self.has_left() || (stores && self.durable().is_some_and(|it| messages.miss(it))) {
            if stores {
                messages.lose(&self.lost());
            }
            for _ in offer.range.clone() {
                self.dropped(worker, DropReason::Offline, Some(messages.topic()));
            }
            return Offered::Done.into();
        }
        // A message that is not stored can still evict a stored one.
        let mut journal = SessionJournal::new(self.durable());
        // After a crash the broker does not know which member of a shared subscription got the message, so it
        // is delivered again (at least once).
        let asks = messages.are_once() && offer.shared.is_none();
        if asks
            && (stores || messages.is_resumed())
            && let Some((durable, shard)) = journal.open()
        {
            let had = messages.had_by(durable.number, shard, offer);
            if had != Had::None {
                messages.wait_for(shard);
            }
            match had {
                Had::None => {}
                Had::Some => return Taken::OneByOne,
                Had::All => return Offered::Done.into(),
            }
        }
        if let Some((durable, shard)) = stores.then(|| journal.open()).flatten() {
            messages.reach(durable.number, shard, offer);
        }
        let stored = stores && self.durable().is_some();
        if outlet.link.is_none()
            || !outlet.has_way()
            || !outlet.is_let_pass(worker, self, offer.qos)
        {
            if outlet.link.is_none() && offer.shared.is_some() && !outlet.outbound.survives() {
                return Offered::Gone.into();
            }
            self.let_wait(worker, outlet, messages, offer, offer.range.clone(), &mut journal);
            return Offered::Done.into();
        }
        if !outlet.takes_as_is(messages, offer) || !outlet.affords(worker, messages.frame_bytes()) {
            self.append_one_by_one(worker, outlet, messages, offer, &mut journal);
            return outlet.after_append().into();
        }
        let (admitted, first_id) = outlet.admit(messages, offer, &mut journal);
        if admitted < offer.range.len() {
            let rest = offer.range.start + admitted..offer.range.end;
            self.let_wait(worker, outlet, messages, offer, rest, &mut journal);
            if admitted == 0 {
                return Offered::Done.into();
            }
        }
        let commits = journal.commits();
        drop(journal);
        let range = offer.range.start..offer.range.start + admitted;
        let after = messages.after().clone();
        let (v5, qos, retain) = (outlet.speaks_v5(), offer.qos, offer.retain);
        let form = PacketForm { range, v5, qos, retain, first_id };
        let bytes = messages.packets_len(&form);
        let mut packets = RunInHand { messages, form };
        let counters = self.account.counters(worker.id);
        counters.sent.add(PacketType::Publish, admitted as u64, bytes as u64);
        self.traffic().add_sent(admitted as u64, bytes as u64);
        outlet.charge(worker, bytes);
        let mut waits_for = after;
        if stored && offer.qos == QoS::ExactlyOnce {
            // The client remembers the packet identifier, so the broker must not forget it.
            waits_for.join(&commits.if_holds(Rule::SendQos2WhenDurable));
        }
        if !waits_for.is_empty() {
            outlet.append(&waits_for, |held| held.append(packets.keep(0)));
            self.release_after(&waits_for, outlet);
            return outlet.after_append().into();
        }
        if offer.writes == Writes::AtOnce
            && outlet.unsent.is_empty()
            && let Some(wire) = outlet.wire()
            && outlet.start_writing()
        {
            return Taken::ToWrite { epoch: outlet.epoch, wire, form: Some(packets.form) };
        }
        if bytes < SHARED_FROM {
            outlet.unsent.push(packets.bytes());
        } else {
            outlet.unsent.append(packets.keep(0));
        }
        if outlet.unsent.len() >= WORTH_A_WRITE
            && offer.writes != Writes::WithFlush
            && let Some(wire) = outlet.wire()
            && outlet.start_writing()
        {
            return Taken::ToWrite { epoch: outlet.epoch, wire, form: None };
        }
        outlet.after_append().into()
    }

    /// Appends messages that cannot be sent in one form: they have Subscription Identifiers or Topic Aliases,
    /// or some are larger than the client takes.
    fn append_one_by_one(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
        journal: &mut SessionJournal<'_>,
    ) {
        let mut waits_for = Commits::default();
        for index in offer.range.clone() {
            if !outlet.has_way()
                || (offer.qos != QoS::AtMostOnce && !outlet.outbound.has_room())
                || !outlet.is_let_pass(worker, self, offer.qos)
            {
                self.let_wait(worker, outlet, messages, offer, index..offer.range.end, journal);
                break;
            }
            let one = Offer { range: index..index + 1, ..offer.clone() };
            let (_, id) = outlet.admit(messages, &one, journal);
            let is_large = messages.publication(index).payload.len() >= SHARED_FROM;
            let message = is_large.then(|| messages.message(index));
            let frame = PublishFrame {
                publication: messages.publication(index),
                qos: offer.qos,
                retain: offer.retain,
                dup: false,
                id,
                identifiers: offer.identifiers,
                alias: AliasUse::None,
                now: worker.now,
            };
            let held = offer.qos == QoS::ExactlyOnce && journal.shard().is_some();
            let mut after = messages.after().clone();
            if held {
                after.join(&noted(journal).if_holds(Rule::SendQos2WhenDurable));
            }
            waits_for.join(&after);
            outlet.put(worker, self, (frame, message.as_ref()), &after, journal);
        }
        journal.close();
        self.release_after(&waits_for, outlet);
    }

    /// Queues messages that cannot be sent now. Drops them if the client is away and they are not kept for
    /// it.
    fn let_wait(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
        range: Range<usize>,
        journal: &mut SessionJournal<'_>,
    ) {
        let waits =
            outlet.link.is_some() || (offer.qos != QoS::AtMostOnce && outlet.outbound.survives());
        if !waits {
            for _ in range {
                self.dropped(worker, DropReason::Offline, Some(messages.topic()));
            }
            return;
        }
        let mut limits = self.queue_limits(outlet);
        let in_memory = self.account.shards.has_memory();
        for index in range {
            let before = outlet.outbound.queue().load();
            let stored = outlet.stored_as(messages, index, offer.qos, journal);
            let delivery = messages.delivery(index, offer, stored);
            let dropped = |reason, lost: &Waiting| self.dropped(worker, reason, lost.topic());
            outlet.outbound.enqueue(delivery, in_memory, worker.now, &limits, journal, dropped);
            // The tenant's counters change only when the outlet is unlocked, so the room is reduced here for the next
            // message of the run.
            limits.follow(before, outlet.outbound.queue().load());
        }
        if limits.overflow == Overflow::Block && offer.qos != QoS::AtMostOnce {
            let room = outlet.outbound.queue().room(&limits);
            if !room.is_some() {
                self.set_full(&limits, outlet);
                messages.overflow();
            }
        }
    }

    /// Queues a message that another session hands over. [`SessionRef::flush`](super::SessionRef::flush)
    /// sends it. Returns the batches that must be durable before the other session forgets the message.
    /// Returns `None` if this session has ended, if its shard was closed, or if the client is away and the
    /// message is not kept for it.
    pub fn enqueue(&self, worker: &Worker, mut delivery: Delivery) -> Option<Commits> {
        self.with(|outlet| {
            let survives = delivery.qos != QoS::AtMostOnce && outlet.outbound.survives();
            let is_gone = self.has_ended() || self.has_left();
            if is_gone || (outlet.link.is_none() && !survives) {
                return None;
            }
            let mut journal = SessionJournal::new(self.durable());
            if delivery.after.is_none() {
                delivery.stored = outlet.newly_stored(delivery.qos, &mut journal);
            }
            let limits = self.queue_limits(outlet);
            let in_memory = self.account.shards.has_memory();
            let now = worker.now;
            let dropped = |reason, lost: &Waiting| self.dropped(worker, reason, lost.topic());
            outlet.outbound.enqueue(delivery, in_memory, now, &limits, &mut journal, dropped);
            Some(journal.commits())
        })
    }
}

/// Returns the accumulating batch of the session's shard, if the session is stored. What was noted of a
/// packet is durable when that batch is.
pub(super) fn noted(journal: &mut SessionJournal<'_>) -> Commits {
    journal.open();
    journal.commits()
}

impl Outlet {
    pub(super) fn speaks_v5(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.version == Version::V5)
    }

    pub(super) fn wire(&self) -> Option<Arc<dyn Wire>> {
        self.link.as_ref().and_then(|link| link.wire.clone())
    }

    /// Whether a message that arrives now may leave at once: no message waits, the encoded bytes are below
    /// their limit, and the CONNACK is not held.
    pub(super) fn has_way(&self) -> bool {
        self.is_idle() && self.backlog() < UNSENT_MAX && !self.is_opening()
    }

    /// Appends the packets that `encode` encodes. They leave when `after` is durable.
    pub(super) fn append(&mut self, after: &Commits, encode: impl FnOnce(&mut Packets)) {
        // Nothing leaves before the CONNACK.
        if after.is_empty() && !self.is_opening() {
            encode(&mut self.unsent);
        } else {
            self.held.get_or_insert_default().push_delivery(after, encode);
        }
    }

    /// Returns whether messages that are delivered with `qos` are stored, if the session is.
    fn stores(&self, messages: &Messages<'_>, qos: QoS) -> bool {
        // A message that reveals changes which may not be durable yet must not outlive these changes.
        let keeps = self.keeps_all && qos != QoS::AtMostOnce && messages.after().is_empty();
        messages.are_stored(qos) || keeps
    }

    /// Assigns the records under which a message of a run is to be stored. Returns `None` if it is not
    /// stored.
    fn stored_as(
        &mut self,
        messages: &Messages<'_>,
        index: usize,
        qos: QoS,
        journal: &SessionJournal<'_>,
    ) -> Option<StoredAs> {
        if !self.stores(messages, qos) {
            return None;
        }
        let message = messages.stored_as(journal.shard()?, index)?;
        Some(StoredAs { entry: self.outbound.new_entry(), message })
    }

    /// Assigns the records under which a message that comes from no run is to be stored. Returns `None` if it
    /// is not stored.
    pub(super) fn newly_stored(
        &mut self,
        qos: QoS,
        journal: &mut SessionJournal<'_>,
    ) -> Option<StoredAs> {
        if qos == QoS::AtMostOnce {
            return None;
        }
        let (_, shard) = journal.open()?;
        let message = shard.new_message_ids(1);
        Some(StoredAs { entry: self.outbound.new_entry(), message })
    }

    fn takes_as_is(&self, messages: &Messages<'_>, offer: &Offer<'_>) -> bool {
        let most = self.link.as_ref().map_or(0, |link| link.max_packet_size as usize);
        self.aliases.is_none() && offer.identifiers.is_empty() && messages.largest() <= most
    }

    /// Takes packet identifiers for as many messages as the window has room for. Returns their number and the
    /// first identifier; the others follow it.
    fn admit(
        &mut self,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
        journal: &mut SessionJournal<'_>,
    ) -> (usize, u16) {
        if offer.qos == QoS::AtMostOnce {
            return (offer.range.len(), 0);
        }
        let keep = self.outbound.must_keep(offer.shared.is_some());
        let mut first = 0;
        for (admitted, index) in offer.range.clone().enumerate() {
            if !self.outbound.has_room() {
                return (admitted, first);
            }
            let stored = self.stored_as(messages, index, offer.qos, journal);
            let kept = (keep || stored.is_some())
                .then(|| Box::new(Waiting::Here(messages.delivery(index, offer, stored))));
            let id = self.outbound.reserve(offer.qos, kept, journal);
            let id = id.expect("the window has room");
            if admitted == 0 {
                first = id;
            }
        }
        (offer.range.len(), first)
    }

    /// Appends one PUBLISH, which leaves when `after` is durable. It has a Topic Alias if the client takes
    /// them and the topic is frequent. A packet that is larger than the client takes is dropped instead (MQTT
    /// 5 §3.1.2.11.4). A large payload is shared if its message is given.
    pub(super) fn put(
        &mut self,
        worker: &Worker,
        session: &Session,
        (mut frame, message): (PublishFrame<'_>, Option<&Arc<Message>>),
        after: &Commits,
        journal: &mut SessionJournal<'_>,
    ) {
        let v5 = self.speaks_v5();
        let most = self.link.as_ref().map_or(usize::MAX, |link| link.max_packet_size as usize);
        if frame.len(v5) > most {
            let freed = match frame.qos {
                QoS::AtMostOnce => Acked::Expected,
                QoS::AtLeastOnce => self.outbound.on_puback(frame.id, journal),
                QoS::ExactlyOnce => self.outbound.on_pubrec(frame.id, false, journal),
            };
            debug_assert_eq!(freed, Acked::Expected);
            session.dropped(worker, DropReason::PacketTooLarge, Some(frame.publication.topic));
            return;
        }
        // Held packets may be overtaken, so they do not define an alias that others use.
        if let (Some(aliases), true) = (&mut self.aliases, after.is_empty()) {
            // Defining an alias adds three bytes, and must not make the packet too large.
            if frame.len(v5) + 3 <= most {
                frame.alias = aliases.assign(frame.publication.topic);
            }
        }
        let mut bytes = 0;
        let shared = message.filter(|_| frame.publication.payload.len() >= SHARED_FROM);
        self.append(after, |packets| {
            let layout = match shared {
                None => frame.put(v5, packets.buffer()),
                Some(message) => {
                    let layout = frame.put_head(v5, packets.buffer());
                    packets.push_payload(Arc::clone(message), 0);
                    layout
                }
            };
            bytes = (layout.end - layout.start) as u64;
        });
        session.account.counters(worker.id).sent.add(PacketType::Publish, 1, bytes);
        session.traffic().add_sent(1, bytes);
        self.charge(worker, usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    pub(super) fn after_append(&mut self) -> Offered {
        if self.writing || self.blocked || self.flush_pending || self.unsent.is_empty() {
            return Offered::Done;
        }
        if self.link.as_ref().is_some_and(|link| link.wire.is_some()) {
            self.flush_pending = true;
            return Offered::FlushLater;
        }
        self.wake_owner();
        Offered::Done
    }
}

/// Messages of a run, in the form in which they are sent to one client.
struct RunInHand<'a, 'b> {
    messages: &'a mut Messages<'b>,
    form: PacketForm,
}

impl InHand for RunInHand<'_, '_> {
    fn bytes(&mut self) -> &[u8] {
        self.messages.packets(&self.form)
    }

    fn keep(&mut self, written: usize) -> Packets {
        self.messages.kept_packets(&self.form, written)
    }
}
