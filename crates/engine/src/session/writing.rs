//! Writing to a client's socket: which thread writes, and when.
//!
//! A message for an idle client is written to its socket by the thread that offers the message; no other
//! thread is woken. The rules that make this safe:
//!
//! * No thread holds the outlet's lock during a system call. A thread that wants to write sets `writing`,
//!   releases the lock, writes, and checks the outlet again before it clears `writing`. While `writing` is
//!   set, other threads only append.
//! * Bytes that a write has left over go in front of those that were appended meanwhile: the order in which
//!   messages were admitted under the lock is the order on the wire. Packet identifiers are taken under the
//!   same lock.
//! * A writer that meets a full socket sets `blocked`. The kernel notifies the thread that owns the
//!   connection when there is room, and that thread goes on. If the notification comes before the writer has
//!   set `blocked`, the owner sets `retry`, and the writer tries again.
//! * A connection that takes or loses the session increments `epoch`. A writer for the previous connection
//!   finds another epoch after its write, and changes nothing. If that connection is to be told why it is closed, it is closed
//!   now (`leaver`), because a DISCONNECT must not follow half a packet.
//!
//! TLS and WebSocket connections have a state that each written byte changes, so only their owner writes.
//! Other threads append packets and wake the owner once.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};

use barid_core::session::{Delivery, Outgoing};
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Ack, Packet, PacketId, PacketType, Properties, QoS, ReasonCode, Version};

use super::delivery::{UNSENT_MAX, noted};
use super::held::FullRoom;
use super::outlet::Outlet;
use super::requested::Requested;
use super::{Session, SessionRef};
use crate::durable::{Commits, SessionJournal};
use crate::encode::PublishFrame;
use crate::faults::{IfHolds as _, Rule, holds};
use crate::packets::Packets;
use crate::tapping::Tap;
use crate::wire::Wire;
use crate::worker::Worker;

/// The maximum amount that is written for one client in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stint {
    bytes: usize,
    /// Messages that are encoded, and retained messages that are looked at. This is a bound even if the
    /// messages are so small, or so many are dropped, that few bytes accumulate.
    steps: usize,
}

impl Stint {
    /// For a thread that does not own the connection, or that has other work for it. It leaves the rest to
    /// the owner.
    pub const SHORT: Self = Self { bytes: 1024 * 1024, steps: 4 * 1024 };

    /// Returns the stint of an owner whose thread writes for `writers` clients in a round. All of them
    /// together take about 10 ms, unless there are so many that each has the minimum. So the only subscriber
    /// of many publishers gets what they send in a round, and is idle again.
    pub fn of_one_among(writers: usize) -> Self {
        let writers = writers.max(1);
        let bytes = (16 * 1024 * 1024 / writers).max(256 * 1024);
        Self { bytes, steps: (32 * 1024 / writers).max(1024) }
    }
}

/// Packets that answer what a client has sent.
#[derive(Debug, Default)]
pub struct Answers {
    /// Acknowledgements, in order; they wait for `commits`, `rooms` and `requested`.
    pub ordered: Vec<u8>,
    /// Batches that must be durable before `ordered` leaves.
    pub commits: Commits,
    /// Sessions whose full queues got messages nevertheless: the publisher gets no acknowledgement until they
    /// have room.
    pub rooms: Vec<SessionRef>,
    /// PUBREL packets; they wait for `releases_after`.
    pub releases: Vec<u8>,
    /// Batches that must be durable before `releases` leaves.
    pub releases_after: Commits,
    /// Packets that wait for nothing, such as PINGRESP.
    pub prompt: Vec<u8>,
    /// Whether requests to the state store are among the packets that are answered.
    pub are_of_requests: bool,
    /// Requests that another broker must have answered before `ordered` leaves.
    pub requested: Option<Requested>,
}

impl Answers {
    /// Whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty() && self.releases.is_empty() && self.prompt.is_empty()
    }

    /// Bytes of all packets.
    pub fn len(&self) -> usize {
        self.ordered.len() + self.releases.len() + self.prompt.len()
    }

    /// Removes all packets. Keeps the memory, but at most 64 KiB for each kind.
    pub fn clear(&mut self) {
        for packets in [&mut self.ordered, &mut self.releases, &mut self.prompt] {
            packets.clear();
            packets.shrink_to(64 * 1024);
        }
        self.commits.clear();
        self.releases_after.clear();
        self.rooms.clear();
        self.are_of_requests = false;
        self.requested = None;
    }
}

impl Session {
    /// Sends waiting packets through `write` in the owner's turn, in order, as far as `write` takes them and
    /// `stint` allows. `writable` says that the kernel has just reported room.
    pub fn drain(
        &self,
        worker: &Worker,
        epoch: u32,
        writable: bool,
        stint: Stint,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) {
        let starts = self.with(|outlet| {
            if outlet.epoch != epoch {
                return false;
            }
            outlet.woken = false;
            outlet.end_wait(worker);
            outlet.release_held(self);
            if writable {
                if outlet.writing {
                    outlet.retry = holds(Rule::RetryWhenThereWasRoom);
                    return false;
                }
                outlet.blocked = false;
            }
            (!outlet.unsent.is_empty() || !outlet.is_idle()) && outlet.start_writing()
        });
        if starts {
            self.pump(worker, epoch, NOTHING, stint, write);
        }
    }

    /// Sends packets that carry no message through `write`; called by the owner of the connection of `epoch`.
    /// Some packets leave only when the batches that they depend on are durable. Returns false if the owner
    /// must not read from the client for now: more than `most` bytes wait for it, or the disk does not keep
    /// up with its messages, or it does not read the responses to its requests. Then the owner is woken when
    /// all bytes have been written.
    pub fn answer(
        &self,
        worker: &Worker,
        epoch: u32,
        answers: &Answers,
        most: usize,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> bool {
        // Two sessions are never locked together: `wake_when_not_full` locks the others, so it is called
        // before this one is locked.
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
            outlet.append(&Commits::default(), |packets| packets.push(&answers.prompt));
        }
        if !(outlet.unsent.is_empty() && !outlet.writing && !outlet.blocked) {
            outlet.unsent.push(std::mem::take(&mut first));
        }
        if (!first.is_empty() || !outlet.unsent.is_empty()) && outlet.start_writing() {
            drop(outlet);
            self.pump(worker, epoch, first, Stint::SHORT, write);
            outlet = self.outlet.lock();
        }
        let are_congested = |commits: &Commits| self.account.shards.are_congested(commits);
        let waits = outlet.held.is_some()
            && (are_congested(&answers.commits)
                || answers.requested.as_ref().is_some_and(|asked| are_congested(asked.over())));
        // A client that does not read the responses to its requests is not read from. Other clients may start
        // to read later.
        let asks_too_much = answers.are_of_requests && outlet.waits_for_reader();
        let reads = outlet.epoch != epoch || (outlet.backlog() <= most && !waits && !asks_too_much);
        outlet.reader_paused |= !reads;
        reads
    }

    /// Holds the answers that must not leave yet. Returns the acknowledgements that may leave now.
    fn hold_back<'a>(
        &self,
        outlet: &mut Outlet,
        answers: &'a Answers,
        rooms: Vec<FullRoom>,
    ) -> &'a [u8] {
        let sources = self.account.shards.sources();
        if !answers.releases.is_empty() {
            let (nothing, after) = (Commits::default(), &answers.releases_after);
            let after = if sources.are_done(after) { &nothing } else { after };
            outlet.append(after, |packets| packets.push(&answers.releases));
            outlet.release_held(self);
        }
        let behind_others = outlet.held.as_ref().is_some_and(|held| held.has_answers());
        if !answers.ordered.is_empty()
            && (behind_others
                || !rooms.is_empty()
                || answers.requested.is_some()
                || !sources.are_done(&answers.commits))
        {
            let held = outlet.held.get_or_insert_default();
            let before = (rooms, answers.requested.clone());
            held.push_answers(answers.commits.clone(), before, &answers.ordered);
            outlet.release_held(self);
            return &[];
        }
        &answers.ordered
    }

    /// Writes `first` and then everything that waits. The caller is the writer of `epoch`.
    pub(super) fn pump(
        &self,
        worker: &Worker,
        epoch: u32,
        mut first: impl InHand,
        stint: Stint,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) {
        let Stint { bytes: room, mut steps } = stint;
        let mut writer = Writer { write, room, tap: self.tap_in_step(epoch) };
        let mut taken: Option<Packets> = None;
        let mut sent = 0;
        loop {
            let wrote = match &mut taken {
                None => writer.write_from(first.bytes(), &mut sent),
                Some(taken) => writer.write_all(taken),
            };
            // Only what was written shows where a packet ends: the unsent bytes may begin within one.
            let has_ended_packet = taken.is_some() || sent > 0;
            let mut next = self.with(|outlet| {
                if outlet.epoch != epoch {
                    outlet.release_leaver(epoch, wrote == Wrote::All, has_ended_packet);
                    return Next::End;
                }
                if wrote == Wrote::UntilFull && std::mem::take(&mut outlet.retry) {
                    return Next::GoOn;
                }
                if wrote != Wrote::All {
                    let rest = taken.take().unwrap_or_else(|| first.keep(sent));
                    outlet.stop_writing(rest, wrote == Wrote::UntilFull);
                    return Next::End;
                }
                outlet.is_cut &= !has_ended_packet;
                if let Some(tapped) = outlet.tap.as_mut().filter(|_| has_ended_packet) {
                    tapped.is_in_step = true;
                    writer.tap.get_or_insert_with(|| Arc::clone(&tapped.tap));
                }
                if outlet.unsent.is_empty() && !outlet.is_idle() {
                    return self.refill_and_take(worker, outlet, &mut steps, writer.room);
                }
                outlet.take_packets(writer.room)
            });
            while let Next::StoreRetained = next {
                // The state is locked before the outlet.
                let fetched = self.fetch_and_store_retained(worker, epoch, &mut steps);
                next = self.with(|outlet| {
                    if outlet.epoch != epoch {
                        outlet.release_leaver(epoch, true, has_ended_packet);
                        return Next::End;
                    }
                    if fetched {
                        return self.refill_and_take(worker, outlet, &mut steps, writer.room);
                    }
                    outlet.wake_owner();
                    outlet.take_packets(writer.room)
                });
            }
            match next {
                Next::Packets(packets) => taken = Some(packets),
                Next::GoOn => {}
                Next::End | Next::StoreRetained => return,
            }
        }
    }

    /// Encodes messages, after all encoded ones were written, and returns the next packets. `room` is the
    /// number of bytes that this stint may still write.
    fn refill_and_take(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        steps: &mut usize,
        room: usize,
    ) -> Next {
        match self.refill(worker, outlet, steps) {
            true => Next::StoreRetained,
            false => outlet.take_packets(room),
        }
    }

    /// Encodes messages from the queue until enough bytes wait for one write, or no steps are left. Returns
    /// true if retained messages come next that must be [stored](Self::fetch_and_store_retained) first.
    fn refill(&self, worker: &Worker, outlet: &mut Outlet, steps: &mut usize) -> bool {
        if outlet.is_opening() {
            return false;
        }
        let mut wants_retained = false;
        let counters = self.account.counters(worker.id);
        let mut journal = SessionJournal::new(self.durable());
        // Batches that must be durable before some of the packets leave.
        let mut waits_for = Commits::default();
        while outlet.backlog() < UNSENT_MAX {
            if *steps == 0 {
                // Other clients have their turn.
                outlet.wake_owner();
                break;
            }
            *steps -= 1;
            if outlet.replays.is_some() && !outlet.outbound.is_replaying() {
                if self.durable().is_some() {
                    wants_retained = true;
                    break;
                }
                if !self.fetch_retained(worker, outlet, &mut journal, steps) {
                    outlet.wake_owner();
                    break;
                }
            }
            if !outlet.may_refill(worker, self) {
                break;
            }
            let rights = outlet.link.as_ref().and_then(|link| link.rights.clone());
            let denied = |delivery: &Delivery| {
                rights.as_ref().is_some_and(|rights| {
                    !rights.may_receive(delivery.message.publication().topic, delivery.qos)
                })
            };
            let next = outlet.outbound.next(worker.now, &mut journal, denied, |reason, lost| {
                self.dropped(worker, reason, lost.topic());
            });
            match next {
                // The fetched retained messages have expired; there may be more.
                None if outlet.replays.is_some() && !outlet.outbound.is_replaying() => {}
                None => break,
                Some(Outgoing::Denied) => {}
                Some(Outgoing::Fetch) => {
                    self.fetch(outlet);
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
                        after.join(&noted(&mut journal).if_holds(Rule::SendQos2WhenDurable));
                    }
                    waits_for.join(&after);
                    let message = Some(&delivery.message);
                    outlet.put(worker, self, (frame, message), &after, &mut journal);
                }
                Some(Outgoing::PubRel(id)) => {
                    let packet_id = PacketId::new(id).expect("the window gives none that is 0");
                    let version = if outlet.speaks_v5() { Version::V5 } else { Version::V3_1_1 };
                    // The receipt of PUBREC may be noted in a batch that is not durable yet.
                    let after = noted(&mut journal).if_holds(Rule::ReleaseWhenDurable);
                    waits_for.join(&after);
                    let mut bytes = 0;
                    outlet.append(&after, |packets| {
                        let buffer = packets.buffer();
                        let before = buffer.len();
                        let properties = Properties::default();
                        Packet::PubRel(Ack { packet_id, reason: ReasonCode::Success, properties })
                            .encode(version, buffer)
                            .expect("a PUBREL can be encoded");
                        bytes = buffer.len() - before;
                    });
                    counters.sent.add(PacketType::PubRel, 1, bytes as u64);
                    outlet.charge(worker, bytes);
                }
            }
        }
        drop(journal);
        outlet.rest();
        self.release_after(&waits_for, outlet);
        wants_retained
    }

    /// Releases held packets after some were appended that wait for `commits`, so that the session is woken
    /// when these are durable.
    pub(super) fn release_after(&self, commits: &Commits, outlet: &mut Outlet) {
        if !commits.is_empty() {
            outlet.release_held(self);
        }
    }
}

/// The next step of a writer.
enum Next {
    /// Write these packets.
    Packets(Packets),
    /// Go on with the same packets: there is room again.
    GoOn,
    /// Store the retained messages that come next.
    StoreRetained,
    /// Stop: the thread is no longer the writer.
    End,
}

impl Outlet {
    /// Ends the writer, because the socket is full (`is_full`) or because other clients have their turn.
    /// `rest` is what it has not written.
    fn stop_writing(&mut self, rest: Packets, is_full: bool) {
        self.unsent.put_back(rest);
        self.is_cut = true;
        self.writing = false;
        if is_full {
            self.blocked = true;
        } else {
            self.retry = false;
            self.wake_owner();
        }
    }

    /// Returns the unsent bytes. If there are none, or this stint has no room for them, ends the writer.
    fn take_packets(&mut self, room: usize) -> Next {
        if !self.unsent.is_empty() && room > 0 {
            return Next::Packets(self.unsent.take());
        }
        self.writing = false;
        self.retry = false;
        // While a quota holds messages back, the owner would not read again, however often it is woken.
        let reader_waits = self.backlog() == 0 && self.reader_paused && !self.waits_for_reader();
        if reader_waits || !self.unsent.is_empty() {
            self.reader_paused &= !reader_waits;
            self.wake_owner();
        }
        Next::End
    }
}

impl SessionRef {
    /// Sends what waits, unless another thread is writing or the socket is full. Wakes the owner if only the
    /// owner can write.
    pub fn flush(&self, worker: &Worker) {
        let mut outlet = self.outlet.lock();
        outlet.flush_pending = false;
        if outlet.unsent.is_empty() && outlet.is_idle() {
            return;
        }
        match outlet.wire() {
            Some(wire) => {
                if outlet.start_writing() {
                    let epoch = outlet.epoch;
                    drop(outlet);
                    self.pump(worker, epoch, NOTHING, Stint::SHORT, direct(&*wire));
                }
            }
            None => outlet.wake_owner(),
        }
    }
}

/// Bytes that a writer has in hand. They are kept only if the socket does not take all of them.
pub(super) trait InHand {
    /// The bytes.
    fn bytes(&mut self) -> &[u8];

    /// Returns what follows the bytes that have been written.
    fn keep(&mut self, written: usize) -> Packets;
}

/// No bytes in hand.
pub(super) const NOTHING: &[u8] = &[];

impl InHand for &[u8] {
    fn bytes(&mut self) -> &[u8] {
        self
    }

    fn keep(&mut self, written: usize) -> Packets {
        let mut kept = Packets::default();
        kept.push(&self[written..]);
        kept
    }
}

/// Writes until the socket takes no more, or the stint is used up.
struct Writer<W> {
    write: W,
    /// Number of bytes that may still be written.
    room: usize,
    /// Receives what has been written.
    tap: Option<Arc<dyn Tap>>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    All,
    /// The socket takes no more bytes for now.
    UntilFull,
    /// The stint is used up: other clients have their turn.
    Enough,
}

impl<W: FnMut(&[u8]) -> io::Result<usize>> Writer<W> {
    fn write_all(&mut self, packets: &mut Packets) -> Wrote {
        while !packets.is_empty() {
            let mut sent = 0;
            let wrote = self.write_from(packets.chunk(), &mut sent);
            packets.advance(sent);
            if wrote != Wrote::All {
                return wrote;
            }
        }
        Wrote::All
    }

    /// Writes `bytes` from `sent` on.
    fn write_from(&mut self, bytes: &[u8], sent: &mut usize) -> Wrote {
        while *sent < bytes.len() {
            if self.room == 0 {
                return Wrote::Enough;
            }
            let end = bytes.len().min(sent.saturating_add(self.room));
            match (self.write)(&bytes[*sent..end]) {
                Ok(n) => {
                    if let Some(tap) = &self.tap {
                        tap.sent(&bytes[*sent..*sent + n]);
                    }
                    *sent += n;
                    self.room -= n;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The owner detects a broken connection; until then nothing is written.
                Err(_) => return Wrote::UntilFull,
            }
        }
        Wrote::All
    }
}

/// Returns a function that writes to a client's socket.
pub(super) fn direct(wire: &dyn Wire) -> impl FnMut(&[u8]) -> io::Result<usize> {
    |bytes| wire.write(bytes)
}
