//! Who writes to a client's socket, and when.
//!
//! A message for an idle client is written to its socket by the thread that has the message in hand;
//! no other thread is woken. The rules that make this safe:
//!
//! * Nobody holds the outlet's lock over a system call. Who wants to write sets `writing`, lets go of
//!   the lock, writes, and looks again before clearing it. While it is set, others only append.
//! * What a write left over goes in front of what others appended meanwhile: the order in which
//!   messages were admitted under the lock is the order on the wire. Packet identifiers are taken under
//!   the same lock.
//! * A writer that meets a full socket sets `blocked`; the thread that owns the connection hears from
//!   the kernel when there is room, and goes on. If it hears while the writer is still on its way to
//!   say so, it leaves `retry` behind, and the writer tries again.
//! * A connection that takes or loses the session raises `epoch`; a writer for the connection before,
//!   when it comes back, finds another epoch and touches nothing.
//!
//! TLS and WebSocket connections have a state for each byte written, so only their owner writes; others
//! append and wake it once.

use std::io::{self, ErrorKind, Write};
use std::num::NonZeroU32;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Weak};

use barid_core::durable::StoredAs;
use barid_core::session::{Acked, Delivery, DropReason, Journal, Outgoing, Overflow, Waiting};
use mio::net::TcpStream;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Ack, Packet, PacketId, PacketType, Properties, QoS, ReasonCode, Version};

use super::held::FullRoom;
use super::outlet::{Outlet, Unsent};
use super::{Session, SessionRef};
use crate::durable::{Commits, SessionJournal};
use crate::encode::PublishFrame;
use crate::run::Messages;
use crate::worker::Worker;

/// Encoded bytes that may wait behind a socket. Beyond, messages wait in the queue, where the tenant's
/// limits and message expiry apply.
const UNSENT_MAX: usize = 256 * 1024;

/// Encoded bytes that are written without waiting for more.
const WORTH_A_WRITE: usize = 16 * 1024;

/// Retained messages fetched at a time.
const FETCHED: usize = 64;

/// How often in a row a thread writes for a client whose connection it does not own, before it leaves
/// the rest to the owner.
const FOREIGN_ROUNDS: usize = 4;

/// How some messages are to be delivered to a session.
#[derive(Clone, Debug)]
pub struct Offer<'a> {
    /// Which messages of the run.
    pub range: Range<usize>,
    /// The QoS to deliver with.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    /// Subscription Identifiers.
    pub identifiers: &'a [NonZeroU32],
    /// The shared subscription that chose the session.
    pub shared: Option<&'a Arc<str>>,
    /// Whether nothing else will be offered to the session soon, so that it is worth writing at once.
    pub at_once: bool,
}

/// What a client is told in answer to what it has sent.
#[derive(Debug, Default)]
pub struct Answers {
    /// Acknowledgements, in order; they wait for `commits` and `rooms`.
    pub ordered: Vec<u8>,
    /// What has to be durable before.
    pub commits: Commits,
    /// Full queues that got messages nevertheless: the publisher hears nothing until they have room.
    pub rooms: Vec<SessionRef>,
    /// PUBREL packets; they wait for `releases_after`.
    pub releases: Vec<u8>,
    /// What has to be durable before.
    pub releases_after: Commits,
    /// What waits for nothing.
    pub prompt: Vec<u8>,
    /// Requests to the state store are among what is answered.
    pub are_of_requests: bool,
}

impl Answers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.releases.is_empty() && self.prompt.is_empty()
    }

    /// Forgets them, and keeps the memory.
    pub fn clear(&mut self) {
        for packets in [&mut self.ordered, &mut self.releases, &mut self.prompt] {
            packets.clear();
            packets.shrink_to(64 * 1024);
        }
        self.commits.clear();
        self.releases_after.clear();
        self.rooms.clear();
        self.are_of_requests = false;
    }
}

/// What is left to do after an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Nothing.
    Done,
    /// [`SessionRef::flush`], when all is offered.
    FlushLater,
    /// The session has gone, and a shared subscription must choose another member.
    Gone,
}

impl Session {
    /// Delivers messages: writes them, or appends them to what is being written, or lets them wait, or
    /// drops and counts them.
    pub fn offer(
        &self,
        worker: &Worker,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
    ) -> Offered {
        let counters = self.tenant.counters(worker.id);
        let mut outlet = self.lock();
        // Also what is not stored itself may cost something that is.
        let mut journal = SessionJournal::new(self.durable());
        // Which member a shared subscription chose before is not known: rather twice than not at all.
        let has_it = journal.shard().is_some_and(|shard| messages.have_reached(shard));
        if has_it && offer.shared.is_none() {
            return Offered::Done;
        }
        let stores = outlet.stores(messages, offer.qos);
        if let Some((_, shard)) = stores.then(|| journal.open()).flatten() {
            messages.reach(shard);
        }
        let stored = stores && self.durable().is_some();
        if outlet.link.is_none() || !outlet.has_way() {
            if outlet.link.is_none() && offer.shared.is_some() && !outlet.outbound.survives() {
                return Offered::Gone;
            }
            self.let_wait(worker, &mut outlet, messages, offer, offer.range.clone(), &mut journal);
            return Offered::Done;
        }
        if !outlet.takes_as_is(messages, offer) {
            self.append_one_by_one(worker, &mut outlet, messages, offer, &mut journal);
            return outlet.after_append();
        }
        let (admitted, first_id) = outlet.admit(messages, offer, &mut journal);
        if admitted < offer.range.len() {
            let rest = offer.range.start + admitted..offer.range.end;
            self.let_wait(worker, &mut outlet, messages, offer, rest, &mut journal);
            if admitted == 0 {
                return Offered::Done;
            }
        }
        let commits = journal.commits();
        drop(journal);
        let range = offer.range.start..offer.range.start + admitted;
        let after = messages.after().clone();
        let packets =
            messages.packets(range, outlet.speaks_v5(), offer.qos, offer.retain, first_id);
        counters.sent.add(PacketType::Publish, admitted as u64, packets.len() as u64);
        let mut waits_for = after;
        if stored && offer.qos == QoS::ExactlyOnce {
            // The client remembers the packet identifier, so the broker must not forget it.
            waits_for.join(&commits);
        }
        if !waits_for.is_empty() {
            outlet.append(&waits_for, |held| held.extend_from_slice(packets));
            self.await_commits(worker, &waits_for, &mut outlet);
            return outlet.after_append();
        }
        if offer.at_once
            && outlet.unsent.is_empty()
            && let Some(socket) = outlet.direct_socket()
            && outlet.start_writing()
        {
            let epoch = outlet.epoch;
            drop(outlet);
            self.pump(worker, epoch, packets, FOREIGN_ROUNDS, direct(&socket));
            return Offered::Done;
        }
        outlet.unsent.push(packets);
        if outlet.unsent.len() >= WORTH_A_WRITE
            && let Some(socket) = outlet.direct_socket()
            && outlet.start_writing()
        {
            let epoch = outlet.epoch;
            drop(outlet);
            self.pump(worker, epoch, &[], FOREIGN_ROUNDS, direct(&socket));
            return Offered::Done;
        }
        outlet.after_append()
    }

    /// The owner's turn: sends what waits through `write`, in order, as far as it takes it. `writable`
    /// says that the kernel has just told that there is room.
    pub fn drain(
        &self,
        worker: &Worker,
        epoch: u32,
        writable: bool,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) {
        let mut outlet = self.lock();
        if outlet.epoch != epoch {
            return;
        }
        outlet.woken = false;
        outlet.release_held(worker);
        if writable {
            if outlet.writing {
                outlet.retry = true;
                return;
            }
            outlet.blocked = false;
        }
        if (!outlet.unsent.is_empty() || !outlet.is_idle()) && outlet.start_writing() {
            drop(outlet);
            self.pump(worker, epoch, &[], usize::MAX, write);
        }
    }

    /// Sends packets that are no messages, by the owner of the connection of `epoch`, through `write`;
    /// some of them only when what they depend on is durable. False: more than `most` bytes wait for the
    /// client, because it does not read or because its messages are not durable yet. The owner, who should
    /// not read from it either, is woken when all have been written.
    pub fn answer(
        &self,
        worker: &Worker,
        epoch: u32,
        answers: &Answers,
        most: usize,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> bool {
        // Publishers are told of by sessions that are locked for it, so before this one is.
        let rooms: Vec<_> = answers
            .rooms
            .iter()
            .filter_map(|room| room.wake_when_not_full(Weak::clone(&self.me)))
            .collect();
        let mut outlet = self.outlet.lock();
        if outlet.epoch != epoch {
            return true;
        }
        let mut first = self.hold_back(&mut outlet, answers, rooms);
        if !answers.prompt.is_empty() {
            outlet
                .append(&Commits::default(), |packets| packets.extend_from_slice(&answers.prompt));
        }
        if !(outlet.unsent.is_empty() && !outlet.writing && !outlet.blocked) {
            outlet.unsent.push(std::mem::take(&mut first));
        }
        if (!first.is_empty() || !outlet.unsent.is_empty()) && outlet.start_writing() {
            drop(outlet);
            self.pump(worker, epoch, first, usize::MAX, write);
            outlet = self.outlet.lock();
        }
        let waits = outlet.held.is_some() && self.tenant.shards.are_congested(&answers.commits);
        // Who asks for more than it reads is not asked for more; others may come later to read.
        let asks_too_much = answers.are_of_requests && outlet.waits_for_reader();
        let reads = outlet.epoch != epoch || (outlet.backlog() <= most && !waits && !asks_too_much);
        outlet.reader_paused |= !reads;
        reads
    }

    /// Keeps back those of the answers that must not leave yet, and returns acknowledgements that may
    /// leave now.
    fn hold_back<'a>(
        &self,
        outlet: &mut Outlet,
        answers: &'a Answers,
        rooms: Vec<FullRoom>,
    ) -> &'a [u8] {
        if !answers.releases.is_empty() {
            let (nothing, after) = (Commits::default(), &answers.releases_after);
            let after = if self.wake_when_durable(after) { after } else { &nothing };
            outlet.append(after, |packets| packets.extend_from_slice(&answers.releases));
        }
        let behind_others = outlet.held.as_ref().is_some_and(|held| held.has_answers());
        if !answers.ordered.is_empty()
            && (self.wake_when_durable(&answers.commits) || !rooms.is_empty() || behind_others)
        {
            let held = outlet.held.get_or_insert_default();
            held.push_answers(answers.commits.clone(), rooms, &answers.ordered);
            // Who was woken before it was here has found nothing.
            if held.has_had_room() {
                outlet.wake_owner();
            }
            return &[];
        }
        &answers.ordered
    }

    /// Writes `first` and then all that waits. The caller has become the writer of `epoch`.
    fn pump(
        &self,
        worker: &Worker,
        epoch: u32,
        first: &[u8],
        rounds: usize,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) {
        let mut taken: Option<Unsent> = None;
        let mut sent = 0;
        for round in 0.. {
            let full = write_until_full(
                taken.as_ref().map_or(first, Unsent::as_slice),
                &mut sent,
                &mut write,
            );
            let mut outlet = self.lock();
            if outlet.epoch != epoch {
                return;
            }
            if full {
                if std::mem::take(&mut outlet.retry) {
                    continue;
                }
                match taken {
                    Some(taken) => outlet.unsent.restore(taken, sent),
                    None => outlet.unsent.put_back(&first[sent..]),
                }
                outlet.blocked = true;
                outlet.writing = false;
                return;
            }
            if outlet.unsent.is_empty() && !outlet.is_idle() {
                while self.refill(worker, &mut outlet) {
                    // The state is locked before the outlet.
                    drop(outlet);
                    self.fetch_and_store_retained(worker, epoch);
                    outlet = self.lock();
                    if outlet.epoch != epoch {
                        return;
                    }
                }
            }
            if outlet.unsent.is_empty() || round == rounds {
                outlet.writing = false;
                outlet.retry = false;
                let reader_waits = outlet.backlog() == 0 && outlet.reader_paused;
                if reader_waits || !outlet.unsent.is_empty() {
                    outlet.reader_paused &= !reader_waits;
                    outlet.wake_owner();
                }
                return;
            }
            taken = Some(outlet.unsent.take());
            sent = 0;
        }
    }

    /// Encodes messages from the queue until enough bytes wait for one write. True: what comes next are
    /// retained messages that are to be [stored](Self::fetch_and_store_retained).
    fn refill(&self, worker: &Worker, outlet: &mut Outlet) -> bool {
        if outlet.is_opening() {
            return false;
        }
        let mut wants_retained = false;
        let counters = self.tenant.counters(worker.id);
        let mut journal = SessionJournal::new(self.durable());
        // What has to be durable before some of the packets leave.
        let mut waits_for = Commits::default();
        while outlet.backlog() < UNSENT_MAX {
            if outlet.replays.is_some() && !outlet.outbound.is_replaying() {
                if self.durable().is_some() {
                    wants_retained = true;
                    break;
                }
                self.fetch_retained(worker, outlet, &mut journal);
            }
            let next = outlet.outbound.next(worker.now, &mut journal, |reason, lost| {
                self.dropped(worker, reason, lost.topic());
            });
            match next {
                // What had been fetched has expired; there may be more.
                None if outlet.replays.is_some() && !outlet.outbound.is_replaying() => {}
                None => break,
                Some(Outgoing::Fetch) => {
                    self.fetch(worker, outlet);
                    break;
                }
                Some(Outgoing::Publish { delivery, id, dup }) => {
                    let frame = PublishFrame {
                        publication: delivery.message.publication(),
                        qos: delivery.qos,
                        retain: delivery.retain,
                        dup,
                        id: id.unwrap_or(0),
                        identifiers: &delivery.identifiers,
                        alias: AliasUse::None,
                        now: worker.now,
                    };
                    let mut after = delivery.after.as_deref().cloned().unwrap_or_default();
                    if delivery.stored.is_some() && delivery.qos == QoS::ExactlyOnce {
                        after.join(&noted(&mut journal));
                    }
                    waits_for.join(&after);
                    outlet.put(worker, self, frame, &after, &mut journal);
                }
                Some(Outgoing::PubRel(id)) => {
                    let packet_id = PacketId::new(id).expect("the window gives none that is 0");
                    let version = if outlet.speaks_v5() { Version::V5 } else { Version::V3_1_1 };
                    // That PUBREC has come may have been noted a moment ago.
                    let after = noted(&mut journal);
                    waits_for.join(&after);
                    let mut bytes = 0;
                    outlet.append(&after, |buffer| {
                        let before = buffer.len();
                        let properties = Properties::default();
                        Packet::PubRel(Ack { packet_id, reason: ReasonCode::Success, properties })
                            .encode(version, buffer)
                            .expect("a PUBREL can be encoded");
                        bytes = (buffer.len() - before) as u64;
                    });
                    counters.sent.add(PacketType::PubRel, 1, bytes);
                }
            }
        }
        drop(journal);
        self.await_commits(worker, &waits_for, outlet);
        wants_retained
    }

    /// Has the outlet looked at again when `commits` are durable; at once if they are.
    fn await_commits(&self, worker: &Worker, commits: &Commits, outlet: &mut Outlet) {
        if !commits.is_empty() && !self.wake_when_durable(commits) {
            outlet.release_held(worker);
        }
    }

    /// Fetches the next retained messages that subscriptions have asked for. They are stored from then
    /// on, if the session is.
    pub(super) fn fetch_retained(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        journal: &mut SessionJournal<'_>,
    ) {
        while let Some(replays) = &mut outlet.replays {
            let Some(replay) = replays.0.front_mut() else {
                outlet.replays = None;
                return;
            };
            let mut found = Vec::new();
            let mut last = None;
            let mut seen = 0;
            let retained = self.tenant.retained.read();
            retained.walk(&replay.filter, replay.after.as_deref(), |topic, message| {
                seen += 1;
                if !message.is_expired(worker.now) {
                    found.push(Delivery {
                        message: Arc::clone(message),
                        qos: message.qos().min(replay.qos),
                        retain: true,
                        identifiers: replay.identifier.into_iter().collect(),
                        shared: None,
                        stored: None,
                        queued_at: worker.now,
                        after: None,
                    });
                }
                if seen < FETCHED {
                    return ControlFlow::Continue(());
                }
                last = Some(topic.into());
                ControlFlow::Break(())
            });
            replay.after = last;
            if replay.after.is_none() {
                replays.0.pop_front();
            }
            if !found.is_empty() {
                for delivery in &mut found {
                    delivery.stored = outlet.newly_stored(delivery.qos, journal);
                    journal.put(delivery, None);
                }
                outlet.outbound.replay(found);
                return;
            }
        }
    }

    /// Messages that do not all look alike to this client: Subscription Identifiers, Topic Aliases, or
    /// some larger than it takes.
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
            if !outlet.has_way() || (offer.qos != QoS::AtMostOnce && !outlet.outbound.has_room()) {
                self.let_wait(worker, outlet, messages, offer, index..offer.range.end, journal);
                break;
            }
            let one = Offer { range: index..index + 1, ..offer.clone() };
            let (_, id) = outlet.admit(messages, &one, journal);
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
                after.join(&noted(journal));
            }
            waits_for.join(&after);
            outlet.put(worker, self, frame, &after, journal);
        }
        journal.close();
        self.await_commits(worker, &waits_for, outlet);
    }

    /// Queues messages that cannot be sent now, or drops them if the session does not wait for its
    /// client.
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
        let limits = self.tenant.queue_limits();
        let in_memory = self.tenant.shards.has_memory();
        for index in range {
            let stored = outlet.stored_as(messages, index, offer.qos, journal);
            let delivery = messages.delivery(index, offer, stored);
            let dropped = |reason, lost: &Waiting| self.dropped(worker, reason, lost.topic());
            outlet.outbound.enqueue(delivery, in_memory, worker.now, &limits, journal, dropped);
        }
        if limits.overflow == Overflow::Block && offer.qos != QoS::AtMostOnce {
            let room = outlet.outbound.queue().room(&limits);
            if !room.is_some() {
                self.set_full(limits.tenant);
                messages.overflow();
            }
        }
    }

    /// Lets one message wait for the client, that another session gives it. [`SessionRef::flush`] sends
    /// it. Answers what has to be durable before the other one forgets it; `None`: the session has gone, or
    /// does not wait for its client with such a message.
    pub fn enqueue(&self, worker: &Worker, mut delivery: Delivery) -> Option<Commits> {
        let mut outlet = self.lock();
        if outlet.link.is_none() && (delivery.qos == QoS::AtMostOnce || !outlet.outbound.survives())
        {
            return None;
        }
        let mut journal = SessionJournal::new(self.durable());
        if delivery.after.is_none() {
            delivery.stored = outlet.newly_stored(delivery.qos, &mut journal);
        }
        let limits = self.tenant.queue_limits();
        let in_memory = self.tenant.shards.has_memory();
        let dropped = |reason, lost: &Waiting| self.dropped(worker, reason, lost.topic());
        outlet.outbound.enqueue(delivery, in_memory, worker.now, &limits, &mut journal, dropped);
        Some(journal.commits())
    }
}

/// The batch that has what was noted of a packet that must not leave before.
fn noted(journal: &mut SessionJournal<'_>) -> Commits {
    journal.open();
    journal.commits()
}

impl SessionRef {
    /// Sends what waits, if nobody is writing and the socket takes it; or wakes the one who can.
    pub fn flush(&self, worker: &Worker) {
        let mut outlet = self.outlet.lock();
        outlet.flush_pending = false;
        if outlet.unsent.is_empty() && outlet.is_idle() {
            return;
        }
        match outlet.direct_socket() {
            Some(socket) => {
                if outlet.start_writing() {
                    let epoch = outlet.epoch;
                    drop(outlet);
                    self.pump(worker, epoch, &[], FOREIGN_ROUNDS, direct(&socket));
                }
            }
            None => outlet.wake_owner(),
        }
    }
}

impl Outlet {
    fn speaks_v5(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.version == Version::V5)
    }

    fn direct_socket(&self) -> Option<Arc<TcpStream>> {
        self.link.as_ref().and_then(|link| link.socket.clone())
    }

    /// Whether a message that arrives now may leave before all that waits in the queue: there is
    /// nothing.
    fn has_way(&self) -> bool {
        self.is_idle() && self.backlog() < UNSENT_MAX && !self.is_opening()
    }

    /// Lets `encode` append packets, to leave `after` something is durable.
    fn append(&mut self, after: &Commits, encode: impl FnOnce(&mut Vec<u8>)) {
        // Nothing leaves before the CONNACK.
        if after.is_empty() && !self.is_opening() {
            encode(self.unsent.buffer());
        } else {
            self.held.get_or_insert_default().push_delivery(after, encode);
        }
    }

    /// Whether messages that are delivered with `qos` are stored, if the session is.
    fn stores(&self, messages: &Messages<'_>, qos: QoS) -> bool {
        // What tells of something else that may not be durable yet must not outlive that.
        let keeps = self.keeps_all && qos != QoS::AtMostOnce && messages.after().is_empty();
        messages.are_stored(qos) || keeps
    }

    /// As what one of the messages is to be stored, if it is.
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

    /// As what a message of its own is to be stored, if it is.
    fn newly_stored(&mut self, qos: QoS, journal: &mut SessionJournal<'_>) -> Option<StoredAs> {
        if qos == QoS::AtMostOnce {
            return None;
        }
        let (_, shard) = journal.open()?;
        let message = shard.new_message_ids(1);
        Some(StoredAs { entry: self.outbound.new_entry(), message })
    }

    fn takes_as_is(&self, messages: &Messages<'_>, offer: &Offer<'_>) -> bool {
        let most = self.link.as_ref().map_or(0, |link| link.max_packet_size);
        self.aliases.is_none() && offer.identifiers.is_empty() && messages.largest() <= most
    }

    /// Takes packet identifiers for as many messages as the window has room for. Returns how many, and
    /// the first identifier; the others follow it.
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

    /// Appends one PUBLISH, with a Topic Alias if the client takes them and the topic is hot; it leaves
    /// `after` something is durable. One that is larger than the client takes is dropped instead (MQTT 5
    /// §3.1.2.11.4).
    fn put(
        &mut self,
        worker: &Worker,
        session: &Session,
        mut frame: PublishFrame<'_>,
        after: &Commits,
        journal: &mut SessionJournal<'_>,
    ) {
        let v5 = self.speaks_v5();
        let most = self.link.as_ref().map_or(usize::MAX, |link| link.max_packet_size);
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
        // What is held back may be overtaken, so it does not define an alias that others use.
        if let (Some(aliases), true) = (&mut self.aliases, after.is_empty()) {
            // An alias adds three bytes where it is defined: not worth a packet that becomes too large.
            if frame.len(v5) + 3 <= most {
                frame.alias = aliases.assign(frame.publication.topic);
            }
        }
        let mut bytes = 0;
        self.append(after, |buffer| {
            let layout = frame.put(v5, buffer);
            bytes = (layout.end - layout.start) as u64;
        });
        session.tenant.counters(worker.id).sent.add(PacketType::Publish, 1, bytes);
    }

    fn after_append(&mut self) -> Offered {
        if self.writing || self.blocked || self.flush_pending || self.unsent.is_empty() {
            return Offered::Done;
        }
        if self.link.as_ref().is_some_and(|link| link.socket.is_some()) {
            self.flush_pending = true;
            return Offered::FlushLater;
        }
        self.wake_owner();
        Offered::Done
    }
}

/// Writes `bytes` from `sent` on. True: what is written to takes no more for now.
fn write_until_full(
    bytes: &[u8],
    sent: &mut usize,
    write: &mut impl FnMut(&[u8]) -> io::Result<usize>,
) -> bool {
    while *sent < bytes.len() {
        match write(&bytes[*sent..]) {
            Ok(n) => *sent += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A broken connection is found by its owner; until then nothing is written.
            Err(_) => return true,
        }
    }
    false
}

/// Writes straight to a socket.
pub(crate) fn direct(socket: &Arc<TcpStream>) -> impl FnMut(&[u8]) -> io::Result<usize> {
    |bytes| (&**socket).write(bytes)
}
