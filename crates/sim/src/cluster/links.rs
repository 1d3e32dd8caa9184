//! The connections between brokers.

use std::collections::VecDeque;

use barid_engine::ids::ConnectionId;
use barid_engine::links::{Carrier, Speaker};
use barid_peers::Identity;
use fastrand::Rng;

/// One direction of a connection: bytes that arrive in order, each at its time.
#[derive(Default)]
pub struct Pipe {
    chunks: VecDeque<(u64, Vec<u8>)>,
    /// Bytes that have arrived and are not handled.
    pub unread: Vec<u8>,
}

impl Pipe {
    /// Sends bytes, which arrive after a random time up to `slowest` milliseconds, perhaps in two pieces.
    pub fn send(&mut self, rng: &mut Rng, now: u64, slowest: u64, mut bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if rng.bool() {
            let rest = bytes.split_off(rng.usize(..bytes.len()));
            self.chunks.push_back((now + rng.u64(..=slowest), bytes));
            bytes = rest;
        }
        self.chunks.push_back((now + rng.u64(..=slowest), bytes));
    }

    /// Lets what is due arrive. Returns whether there is something to handle.
    pub fn arrive(&mut self, now: u64) -> bool {
        while let Some((_, bytes)) = self.chunks.pop_front_if(|(at, _)| *at <= now) {
            self.unread.extend(bytes);
        }
        !self.unread.is_empty()
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// The brokers at the ends of a connection, in their lives at that time. The first one has opened it.
pub struct Ends {
    pub from: usize,
    pub to: usize,
    /// The broker that has opened it.
    pub speaker: Identity,
    /// The other one.
    pub listener: Identity,
    /// Whether the first one has closed it. What it has sent arrives.
    pub is_closed: bool,
    /// Whether nothing passes any more.
    pub is_over: bool,
}

/// A control link.
pub struct Control {
    pub ends: Ends,
    pub speaker: Speaker,
    pub forth: Pipe,
    pub back: Pipe,
    pub next_beat: u64,
    /// Whether the listener has said its last word.
    pub is_refused: bool,
}

/// A message link.
pub struct Carried {
    pub ends: Ends,
    pub id: ConnectionId,
    pub out: Carrier,
    pub into: Carrier,
    pub forth: Pipe,
    pub back: Pipe,
}

/// All connections.
#[derive(Default)]
pub struct Links {
    pub control: Vec<Control>,
    pub carried: Vec<Carried>,
    next: u64,
}

impl Links {
    /// Returns a number for a new connection.
    pub fn next_id(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId(1_000_000 + self.next)
    }

    /// Whether a broker has a control link, or a message link, to another one that it has not closed.
    pub fn has(&self, is_control: bool, from: usize, to: usize) -> bool {
        let is_it =
            |ends: &Ends| (ends.from, ends.to) == (from, to) && !ends.is_closed && !ends.is_over;
        match is_control {
            true => self.control.iter().any(|link| is_it(&link.ends)),
            false => self.carried.iter().any(|link| is_it(&link.ends)),
        }
    }

    /// The ends of all connections.
    pub fn ends(&mut self) -> impl Iterator<Item = &mut Ends> {
        let control = self.control.iter_mut().map(|link| &mut link.ends);
        control.chain(self.carried.iter_mut().map(|link| &mut link.ends))
    }

    /// Removes connections that are over.
    pub fn sweep(&mut self) {
        self.control.retain(|link| !link.ends.is_over);
        self.carried.retain(|link| !link.ends.is_over);
    }
}
