//! Outlets: the way out to one client. The rules that guard it are stated in `writing.rs`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use barid_core::holder::Holder;
use barid_core::session::{Outbound, WindowLimits};
use mqtt_proto::flow::OutboundAliases;
use mqtt_proto::{QoS, ReasonCode, Version};

use super::Session;
use super::held::Held;
use crate::access::Permissions;
use crate::durable::Commits;
use crate::faults::{Rule, holds};
use crate::ids::ConnectionId;
use crate::owner::{Farewell, Owner};
use crate::packets::Packets;
use crate::quotas::Pace;
use crate::tapping::Tap;
use crate::wire::Wire;

/// The connection through which an outlet reaches its client.
#[derive(Clone, Debug)]
pub struct Link {
    /// The protocol version of the client.
    pub version: Version,
    /// The client's Maximum Packet Size in bytes.
    pub max_packet_size: u32,
    /// The socket, if any thread may write to it.
    pub wire: Option<Arc<dyn Wire>>,
    /// The thread that owns the connection.
    pub owner: Arc<dyn Owner>,
    /// The connection, as its owner knows it.
    pub connection: ConnectionId,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The name of the listener that it has reached.
    pub listener: &'static str,
    /// The Keep Alive that holds, in seconds; 0: it is switched off.
    pub keep_alive: u16,
    /// The permissions with which waiting messages are checked, because subscriptions were revoked; `None`: none were.
    pub rights: Option<Arc<Permissions>>,
}

/// The way out to one client. The outlet of a session without a client has no link.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    pub(super) link: Option<Link>,
    /// The owner was asked to close the connection.
    pub(super) is_closing: bool,
    pub(super) outbound: Outbound,
    /// The user to whom the session belongs, for whom the messages count.
    pub(super) holder: Option<Arc<Holder>>,
    /// Waiting messages of QoS 1 and 2 are stored whatever their durability class, if the session is stored.
    pub(super) keeps_all: bool,
    /// Retained messages that new subscriptions have asked for and that were not fetched yet.
    pub(super) replays: Option<Box<Replays>>,
    /// Encoded packets that wait for the socket.
    pub(super) unsent: Packets,
    /// Packets that must not leave yet.
    pub(super) held: Option<Box<Held>>,
    /// Publishers that are held back until the queue has room.
    pub(super) room_waiters: Option<Box<RoomWaiters>>,
    pub(super) aliases: Option<Box<OutboundAliases>>,
    /// The pace of what is sent to the client; `None`: no quota limits it.
    pub(super) pace: Option<Box<Pace>>,
    /// Incremented whenever a connection takes or loses the session.
    pub(super) epoch: u32,
    /// A thread is writing to the socket, without the lock.
    pub(super) writing: bool,
    /// No packet may be sent before the unsent bytes: they may begin within a packet, or with CONNACK, which may still be
    /// [held](Self::held) instead.
    pub(super) is_cut: bool,
    /// A connection that has lost the session while a thread was writing to its socket.
    pub(super) leaver: Option<Box<Leaver>>,
    /// The socket is full; the kernel will notify the owner when there is room.
    pub(super) blocked: bool,
    /// The kernel has reported room while a thread was writing.
    pub(super) retry: bool,
    /// A thread will write the unsent bytes at the end of its turn.
    pub(super) flush_pending: bool,
    /// The owner does not read from the client until all bytes for the client have been written.
    pub(super) reader_paused: bool,
    /// The owner was told that something waits, and has not checked the outlet yet.
    pub(super) woken: bool,
    /// Messages are being read back from the store.
    pub(super) fetching: bool,
    /// Receives copies of what passes on the connection.
    pub(super) tap: Option<Box<OutletTap>>,
}

/// A connection that is to be closed by the thread that is writing to its socket, when that has finished: only this thread sees
/// whether a packet was cut off.
#[derive(Debug)]
pub(super) struct Leaver {
    owner: Arc<dyn Owner>,
    connection: ConnectionId,
    /// The epoch in which it had the session.
    epoch: u32,
    reason: ReasonCode,
    /// [`Outlet::is_cut`], before the write.
    was_cut: bool,
}

/// The tap of a connection.
#[derive(Debug)]
pub(super) struct OutletTap {
    pub(super) tap: Arc<dyn Tap>,
    /// The next byte to be written begins a packet, or the tap has got the bytes before it.
    pub(super) is_in_step: bool,
}

impl Outlet {
    pub(super) fn attach(
        &mut self,
        link: Link,
        window: WindowLimits,
        survives: bool,
        aliases: Option<Box<OutboundAliases>>,
        connack: &[u8],
        commits: Commits,
    ) {
        debug_assert!(self.link.is_none());
        self.link = Some(link);
        self.outbound.set_survives(survives);
        self.outbound.resume(window);
        self.aliases = aliases;
        if commits.is_empty() {
            self.unsent.push(connack);
        } else {
            let held = self.held.get_or_insert_default();
            held.push_answers(commits, (Vec::new(), None), connack);
            held.opening = true;
        }
        self.is_cut = true;
    }

    /// Takes the session from its connection, and has the owner close the connection: at once, or when the thread that is writing
    /// to it has finished. The client is told `reason`, unless its socket is full or it has no CONNACK yet. Returns whether there
    /// was a connection.
    pub(super) fn close_connection(&mut self, reason: ReasonCode) -> bool {
        let (writing, epoch, was_cut) = (self.writing, self.epoch, self.is_cut);
        let is_whole = !writing && !was_cut;
        let Some(Link { owner, connection, .. }) = self.detach() else { return false };
        if writing && self.leaver.is_none() {
            let leaver = Leaver { owner, connection, epoch, reason, was_cut };
            self.leaver = Some(Box::new(leaver));
        } else {
            let farewell = if is_whole { Farewell::AtOnce } else { Farewell::Silent };
            owner.close(connection, reason, farewell);
        }
        true
    }

    /// A writer has found that the connection of `epoch` has lost the session. `wrote_all`: it has written all of what it took.
    /// `has_ended_packet`: that was something.
    pub(super) fn release_leaver(&mut self, epoch: u32, wrote_all: bool, has_ended_packet: bool) {
        let Some(leaver) = self.leaver.take_if(|leaver| leaver.epoch == epoch) else { return };
        let Leaver { owner, connection, reason, was_cut, .. } = *leaver;
        let is_whole = wrote_all && (has_ended_packet || !was_cut);
        let farewell = if is_whole { Farewell::AtOnce } else { Farewell::Silent };
        owner.close(connection, reason, farewell);
    }

    pub(super) fn detach(&mut self) -> Option<Link> {
        self.epoch = self.epoch.wrapping_add(1);
        self.unsent = Packets::default();
        self.held = None;
        self.aliases = None;
        self.pace = None;
        self.writing = false;
        self.is_cut = false;
        self.blocked = false;
        self.retry = false;
        self.flush_pending = false;
        self.reader_paused = false;
        self.woken = false;
        self.is_closing = false;
        self.tap = None;
        self.link.take()
    }

    /// Makes the caller the writer, unless there is one or the socket is full. Returns whether the caller is
    /// the writer.
    pub(super) fn start_writing(&mut self) -> bool {
        let has_writer = self.writing && holds(Rule::OneWriter);
        let start = !has_writer && !self.blocked;
        self.writing |= start;
        start
    }

    /// Whether nothing waits except packets that are encoded already.
    pub(super) fn is_idle(&self) -> bool {
        self.outbound.is_idle() && self.replays.is_none()
    }

    /// Whether the CONNACK is still held.
    pub(super) fn is_opening(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.opening)
    }

    /// Number of encoded bytes that wait for the client, for whatever reason.
    pub(super) fn backlog(&self) -> usize {
        self.unsent.len() + self.held.as_ref().map_or(0, |held| held.len())
    }

    /// Whether messages wait only because the client does not read: the send window has room for more.
    pub(super) fn waits_for_reader(&self) -> bool {
        !self.outbound.queue().is_empty() && self.outbound.has_room()
    }

    /// Wakes the owner, unless it was woken before and has not checked the outlet yet.
    pub(super) fn wake_owner(&mut self) {
        if let (Some(link), false) = (&self.link, self.woken) {
            self.woken = true;
            link.owner.drain(link.connection);
        }
    }
}

/// Publishers that are held back until the queue has room.
#[derive(Debug, Default)]
pub(super) struct RoomWaiters(pub(super) Vec<Weak<Session>>);

/// Maximum number of waiting walks of one session, and maximum number of bytes of their filters. A
/// subscription that would exceed one of these ends the connection (Quota exceeded).
const REPLAYS_MAX: usize = 10_000;
const REPLAY_BYTES_MAX: usize = 1024 * 1024;

/// Walks through the retained messages, one for each subscription that asked for them.
#[derive(Debug, Default)]
pub(super) struct Replays {
    walks: VecDeque<Replay>,
    /// Bytes of their filters.
    bytes: usize,
}

impl Replays {
    /// Number of walks.
    pub fn len(&self) -> usize {
        self.walks.len()
    }

    /// The walks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Replay> {
        self.walks.iter()
    }

    /// The walk that is under way.
    pub fn front_mut(&mut self) -> Option<&mut Replay> {
        self.walks.front_mut()
    }

    /// Removes the first walk, which has ended.
    pub fn pop_front(&mut self) {
        if let Some(done) = self.walks.pop_front() {
            self.bytes -= done.filter.len();
        }
    }

    /// Appends a walk. Returns false, and appends nothing, if there are too many.
    pub fn push(&mut self, replay: Replay) -> bool {
        let bytes = self.bytes + replay.filter.len();
        let has_room = self.walks.len() < REPLAYS_MAX && bytes <= REPLAY_BYTES_MAX;
        if has_room {
            self.bytes = bytes;
            self.walks.push_back(replay);
        }
        has_room
    }
}

/// The walk of one subscription through the retained messages. They are fetched a few at a time, as the
/// client takes them, so that a wide filter costs no memory.
#[derive(Debug)]
pub struct Replay {
    /// The Topic Filter.
    pub filter: Box<str>,
    /// The QoS granted.
    pub qos: QoS,
    /// The Subscription Identifier.
    pub identifier: Option<NonZeroU32>,
    /// The topic that was fetched last.
    pub after: Option<Box<str>>,
}
