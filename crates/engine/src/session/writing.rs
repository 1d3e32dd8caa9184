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

use std::io::{self, ErrorKind};
use std::sync::Weak;

use barid_core::session::Outgoing;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Ack, Packet, PacketId, PacketType, Properties, QoS, ReasonCode, Version};

use super::delivery::{UNSENT_MAX, noted};
use super::held::FullRoom;
use super::outlet::Outlet;
use super::{Session, SessionRef};
use crate::durable::{Commits, SessionJournal};
use crate::encode::PublishFrame;
use crate::faults::{IfHolds as _, Rule, holds};
use crate::packets::Packets;
use crate::wire::Wire;
use crate::worker::Worker;

/// How much is written for one client in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stint {
    bytes: usize,
    /// Messages that are encoded, or retained messages that are looked at: also if they are so small, or so many are
    /// dropped, that no bytes come together.
    steps: usize,
}

impl Stint {
    /// Of a thread that does not own the connection, or has something else to do for it: it leaves the rest to the
    /// owner.
    pub const SHORT: Self = Self { bytes: 1024 * 1024, steps: 4 * 1024 };

    /// Of the owner, whose thread writes for so many clients in a round: all of them together take some 10 ms, as far as
    /// their number allows. So the only subscriber of many publishers gets what they send in a round, and is idle
    /// again.
    pub fn of_one_among(writers: usize) -> Self {
        let writers = writers.max(1);
        let bytes = (16 * 1024 * 1024 / writers).max(256 * 1024);
        Self { bytes, steps: (32 * 1024 / writers).max(1024) }
    }
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

impl Session {
    /// The owner's turn: sends what waits through `write`, in order, as far as it takes it. `writable`
    /// says that the kernel has just told that there is room.
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
        let waits = outlet.held.is_some() && self.account.shards.are_congested(&answers.commits);
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
        let sources = self.account.shards.sources();
        if !answers.releases.is_empty() {
            let (nothing, after) = (Commits::default(), &answers.releases_after);
            let after = if sources.are_done(after) { &nothing } else { after };
            outlet.append(after, |packets| packets.push(&answers.releases));
            outlet.release_held(self);
        }
        let behind_others = outlet.held.as_ref().is_some_and(|held| held.has_answers());
        if !answers.ordered.is_empty()
            && (behind_others || !rooms.is_empty() || !sources.are_done(&answers.commits))
        {
            let held = outlet.held.get_or_insert_default();
            held.push_answers(answers.commits.clone(), rooms, &answers.ordered);
            outlet.release_held(self);
            return &[];
        }
        &answers.ordered
    }

    /// Writes `first` and then all that waits. The caller has become the writer of `epoch`.
    pub(super) fn pump(
        &self,
        worker: &Worker,
        epoch: u32,
        mut first: impl InHand,
        stint: Stint,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) {
        let Stint { bytes: room, mut steps } = stint;
        let mut writer = Writer { write, room };
        let mut taken: Option<Packets> = None;
        let mut sent = 0;
        loop {
            let wrote = match &mut taken {
                None => writer.write_from(first.bytes(), &mut sent),
                Some(taken) => writer.write_all(taken),
            };
            let mut next = self.with(|outlet| {
                if outlet.epoch != epoch {
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

    /// Encodes messages, as nothing encoded waits, and returns the next packets. `room`: the bytes that this stint may still
    /// write.
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

    /// Encodes messages from the queue until enough bytes wait for one write, or no steps are left. True: what comes
    /// next are retained messages that are to be [stored](Self::fetch_and_store_retained).
    fn refill(&self, worker: &Worker, outlet: &mut Outlet, steps: &mut usize) -> bool {
        if outlet.is_opening() {
            return false;
        }
        let mut wants_retained = false;
        let counters = self.account.counters(worker.id);
        let mut journal = SessionJournal::new(self.durable());
        // What has to be durable before some of the packets leave.
        let mut waits_for = Commits::default();
        while outlet.backlog() < UNSENT_MAX {
            if *steps == 0 {
                // Others have their turn.
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
            let next = outlet.outbound.next(worker.now, &mut journal, |reason, lost| {
                self.dropped(worker, reason, lost.topic());
            });
            match next {
                // What had been fetched has expired; there may be more.
                None if outlet.replays.is_some() && !outlet.outbound.is_replaying() => {}
                None => break,
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
                    // That PUBREC has come may have been noted a moment ago.
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
                        bytes = (buffer.len() - before) as u64;
                    });
                    counters.sent.add(PacketType::PubRel, 1, bytes);
                }
            }
        }
        drop(journal);
        self.release_after(&waits_for, outlet);
        wants_retained
    }

    /// Something was appended to the outlet that may leave after `commits`.
    pub(super) fn release_after(&self, commits: &Commits, outlet: &mut Outlet) {
        if !commits.is_empty() {
            outlet.release_held(self);
        }
    }
}

/// What a writer does next.
enum Next {
    /// Writes these.
    Packets(Packets),
    /// Goes on with what it has: there is room again.
    GoOn,
    /// Has the retained messages stored that come next.
    StoreRetained,
    /// Nothing: it is no writer any more.
    End,
}

impl Outlet {
    /// The writer ends, because the socket is full or because others have their turn. `rest`: what it has not written.
    fn stop_writing(&mut self, rest: Packets, is_full: bool) {
        self.unsent.put_back(rest);
        self.writing = false;
        if is_full {
            self.blocked = true;
        } else {
            self.retry = false;
            self.wake_owner();
        }
    }

    /// What waits for the socket; unless that is nothing, or there is no room for it in this stint.
    fn take_packets(&mut self, room: usize) -> Next {
        if !self.unsent.is_empty() && room > 0 {
            return Next::Packets(self.unsent.take());
        }
        self.writing = false;
        self.retry = false;
        let reader_waits = self.backlog() == 0 && self.reader_paused;
        if reader_waits || !self.unsent.is_empty() {
            self.reader_paused &= !reader_waits;
            self.wake_owner();
        }
        Next::End
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

/// What a writer has in hand: it is kept only if the socket does not take all of it.
pub(super) trait InHand {
    /// The bytes.
    fn bytes(&mut self) -> &[u8];

    /// What is left behind the bytes that have been written.
    fn keep(&mut self, written: usize) -> Packets;
}

/// Nothing in hand.
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

/// Writes as far as what it writes to takes it, and as far as its thread has time.
struct Writer<W> {
    write: W,
    /// Bytes that may still be written.
    room: usize,
}

/// How far writing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    All,
    /// What is written to takes no more for now.
    UntilFull,
    /// Others have their turn.
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
                    *sent += n;
                    self.room -= n;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A broken connection is found by its owner; until then nothing is written.
                Err(_) => return Wrote::UntilFull,
            }
        }
        Wrote::All
    }
}

/// Writes straight to the client.
pub(super) fn direct(wire: &dyn Wire) -> impl FnMut(&[u8]) -> io::Result<usize> {
    |bytes| wire.write(bytes)
}
