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
use std::sync::Arc;

use barid_core::session::{Acked, Delivery, DropReason, Outgoing};
use mio::net::TcpStream;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Ack, Packet, PacketId, PacketType, Properties, QoS, ReasonCode, Version};
use parking_lot::MutexGuard;

use super::outlet::{Outlet, Unsent};
use super::{Session, SessionRef};
use crate::encode::PublishFrame;
use crate::metrics::Counters;
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
        let mut outlet = self.outlet.lock();
        if outlet.link.is_none() {
            if offer.shared.is_some() && !outlet.outbound.survives() {
                return Offered::Gone;
            }
            self.let_wait(counters, &mut outlet, messages, offer, offer.range.clone());
            return Offered::Done;
        }
        if !outlet.has_way() {
            self.let_wait(counters, &mut outlet, messages, offer, offer.range.clone());
            return Offered::Done;
        }
        if !outlet.takes_as_is(messages, offer) {
            self.append_one_by_one(worker, counters, &mut outlet, messages, offer);
            return outlet.after_append();
        }
        let (admitted, first_id) = outlet.admit(messages, offer);
        if admitted < offer.range.len() {
            let rest = offer.range.start + admitted..offer.range.end;
            self.let_wait(counters, &mut outlet, messages, offer, rest);
            if admitted == 0 {
                return Offered::Done;
            }
        }
        let range = offer.range.start..offer.range.start + admitted;
        let packets =
            messages.packets(range, outlet.speaks_v5(), offer.qos, offer.retain, first_id);
        counters.sent.add(PacketType::Publish, admitted as u64, packets.len() as u64);
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
        let mut outlet = self.outlet.lock();
        if outlet.epoch != epoch {
            return;
        }
        outlet.woken = false;
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

    /// Sends packets that are no messages, by the owner of the connection of `epoch`, through `write`.
    /// False: the client does not read, and more than `most` bytes wait for it. The owner, who should not
    /// read from it either, is woken when all have been written.
    pub fn answer(
        &self,
        worker: &Worker,
        epoch: u32,
        packets: &[u8],
        most: usize,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> bool {
        let mut outlet = self.outlet.lock();
        if outlet.epoch != epoch {
            return true;
        }
        let first = if outlet.unsent.is_empty() && !outlet.writing && !outlet.blocked {
            packets
        } else {
            outlet.unsent.push(packets);
            &[]
        };
        if outlet.start_writing() {
            drop(outlet);
            self.pump(worker, epoch, first, usize::MAX, write);
            outlet = self.outlet.lock();
        }
        let reads = outlet.epoch != epoch || outlet.unsent.len() <= most;
        outlet.reader_paused |= !reads;
        reads
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
            let mut outlet = self.outlet.lock();
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
                self.refill(worker, &mut outlet);
            }
            if outlet.unsent.is_empty() || round == rounds {
                outlet.writing = false;
                outlet.retry = false;
                let reader_waits = outlet.unsent.is_empty() && outlet.reader_paused;
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

    /// Encodes messages from the queue until enough bytes wait for one write.
    fn refill(&self, worker: &Worker, outlet: &mut Outlet) {
        let counters = self.tenant.counters(worker.id);
        while outlet.unsent.len() < UNSENT_MAX {
            if !outlet.outbound.is_replaying() {
                self.fetch_retained(worker, outlet);
            }
            let next = outlet.outbound.next(worker.now, |reason| counters.dropped(reason));
            match next {
                // What had been fetched has expired; there may be more.
                None if outlet.replays.is_some() && !outlet.outbound.is_replaying() => {}
                None => return,
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
                    outlet.put(counters, frame);
                }
                Some(Outgoing::PubRel(id)) => {
                    let packet_id = PacketId::new(id).expect("the window gives none that is 0");
                    let version = if outlet.speaks_v5() { Version::V5 } else { Version::V3_1_1 };
                    let before = outlet.unsent.len();
                    Packet::PubRel(Ack {
                        packet_id,
                        reason: ReasonCode::Success,
                        properties: Properties::default(),
                    })
                    .encode(version, outlet.unsent.buffer())
                    .expect("a PUBREL can be encoded");
                    let bytes = outlet.unsent.len() - before;
                    counters.sent.add(PacketType::PubRel, 1, bytes as u64);
                }
            }
        }
    }

    /// Fetches the next retained messages that subscriptions have asked for.
    fn fetch_retained(&self, worker: &Worker, outlet: &mut Outlet) {
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
        counters: &Counters,
        outlet: &mut MutexGuard<'_, Outlet>,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
    ) {
        for index in offer.range.clone() {
            if !outlet.has_way() || (offer.qos != QoS::AtMostOnce && !outlet.outbound.has_room()) {
                self.let_wait(counters, outlet, messages, offer, index..offer.range.end);
                return;
            }
            let one = Offer { range: index..index + 1, ..offer.clone() };
            let (_, id) = outlet.admit(messages, &one);
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
            outlet.put(counters, frame);
        }
    }

    /// Queues messages that cannot be sent now, or drops them if the session does not wait for its
    /// client.
    fn let_wait(
        &self,
        counters: &Counters,
        outlet: &mut Outlet,
        messages: &mut Messages<'_>,
        offer: &Offer<'_>,
        range: Range<usize>,
    ) {
        let waits =
            outlet.link.is_some() || (offer.qos != QoS::AtMostOnce && outlet.outbound.survives());
        if !waits {
            for _ in range {
                counters.dropped(DropReason::Offline);
            }
            return;
        }
        let limits = self.tenant.queue_limits();
        for index in range {
            let delivery =
                messages.delivery(index, offer.qos, offer.retain, offer.identifiers, offer.shared);
            outlet.outbound.enqueue(delivery, &limits, |reason| counters.dropped(reason));
        }
    }
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
        self.is_idle() && self.unsent.len() < UNSENT_MAX
    }

    fn takes_as_is(&self, messages: &Messages<'_>, offer: &Offer<'_>) -> bool {
        let most = self.link.as_ref().map_or(0, |link| link.max_packet_size);
        self.aliases.is_none() && offer.identifiers.is_empty() && messages.largest() <= most
    }

    /// Takes packet identifiers for as many messages as the window has room for. Returns how many, and
    /// the first identifier; the others follow it.
    fn admit(&mut self, messages: &mut Messages<'_>, offer: &Offer<'_>) -> (usize, u16) {
        if offer.qos == QoS::AtMostOnce {
            return (offer.range.len(), 0);
        }
        let keep = self.outbound.must_keep(offer.shared.is_some());
        let mut first = 0;
        for (admitted, index) in offer.range.clone().enumerate() {
            if !self.outbound.has_room() {
                return (admitted, first);
            }
            let kept = keep.then(|| {
                Box::new(messages.delivery(
                    index,
                    offer.qos,
                    offer.retain,
                    offer.identifiers,
                    offer.shared,
                ))
            });
            let id = self.outbound.reserve(offer.qos, kept).expect("the window has room");
            if admitted == 0 {
                first = id;
            }
        }
        (offer.range.len(), first)
    }

    /// Appends one PUBLISH, with a Topic Alias if the client takes them and the topic is hot. One that
    /// is larger than the client takes is dropped instead (MQTT 5 §3.1.2.11.4).
    fn put(&mut self, counters: &Counters, mut frame: PublishFrame<'_>) {
        let v5 = self.speaks_v5();
        let most = self.link.as_ref().map_or(usize::MAX, |link| link.max_packet_size);
        if frame.len(v5) > most {
            let freed = match frame.qos {
                QoS::AtMostOnce => Acked::Expected,
                QoS::AtLeastOnce => self.outbound.on_puback(frame.id),
                QoS::ExactlyOnce => self.outbound.on_pubrec(frame.id, false),
            };
            debug_assert_eq!(freed, Acked::Expected);
            counters.dropped(DropReason::PacketTooLarge);
            return;
        }
        if let Some(aliases) = &mut self.aliases {
            // An alias adds three bytes where it is defined: not worth a packet that becomes too large.
            if frame.len(v5) + 3 <= most {
                frame.alias = aliases.assign(frame.publication.topic);
            }
        }
        let layout = frame.put(v5, self.unsent.buffer());
        counters.sent.add(PacketType::Publish, 1, (layout.end - layout.start) as u64);
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
