//! Packets that must not leave before something else is durable, or before a queue has room.

use std::collections::VecDeque;
use std::sync::Weak;

use super::Session;
use super::packets::Packets;
use crate::durable::{Commits, Shards};

/// What an outlet keeps back. There is one only while something waits.
///
/// Two lanes, each in order: acknowledgements of what the client has sent, and what is on its way to it
/// (PUBLISH of QoS 2, PUBREL). Neither waits for the other.
#[derive(Debug, Default)]
pub(super) struct Held {
    answers: VecDeque<Chunk>,
    deliveries: VecDeque<Chunk>,
    bytes: usize,
    /// The CONNACK is among the answers, and nothing may leave before it.
    pub(super) opening: bool,
}

/// A session whose queue was full.
#[derive(Clone, Debug)]
pub(super) struct FullRoom {
    pub(super) session: Weak<Session>,
    /// See [`Session::fullness`].
    pub(super) since: u64,
}

impl FullRoom {
    /// Whether it has been full ever since.
    fn is_full(&self) -> bool {
        self.session.upgrade().is_some_and(|session| session.fullness() == self.since)
    }
}

#[derive(Debug)]
struct Chunk {
    commits: Commits,
    /// Sessions whose queues were full, and when: their publisher is held back.
    rooms: Vec<FullRoom>,
    packets: Packets,
}

impl Held {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.deliveries.is_empty()
    }

    /// Whether acknowledgements wait, which others must not overtake.
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Keeps acknowledgements back.
    pub(super) fn push_answers(&mut self, commits: Commits, rooms: Vec<FullRoom>, packets: &[u8]) {
        self.bytes += packets.len();
        let mut chunk = Chunk { commits, rooms, packets: Packets::default() };
        chunk.packets.push(packets);
        self.answers.push_back(chunk);
    }

    /// Keeps back what `encode` appends: packets on their way to the client.
    pub(super) fn push_delivery(&mut self, commits: &Commits, encode: impl FnOnce(&mut Packets)) {
        let joins = self.deliveries.back().is_some_and(|last| last.commits == *commits);
        if !joins {
            let commits = commits.clone();
            let (rooms, packets) = (Vec::new(), Packets::default());
            self.deliveries.push_back(Chunk { commits, rooms, packets });
        }
        let packets = &mut self.deliveries.back_mut().expect("it was pushed").packets;
        let before = packets.len();
        encode(packets);
        self.bytes += packets.len() - before;
    }

    /// Whether the last acknowledgements wait for room in vain: there has been some.
    pub(super) fn has_had_room(&self) -> bool {
        self.answers
            .back()
            .is_some_and(|last| !last.rooms.is_empty() && !last.rooms.iter().any(FullRoom::is_full))
    }

    /// Moves what may leave now to `unsent`.
    pub(super) fn release(&mut self, shards: &Shards, unsent: &mut Packets) {
        for lane in [&mut self.answers, &mut self.deliveries] {
            while lane.front().is_some_and(|chunk| chunk.is_free(shards)) {
                let chunk = lane.pop_front().expect("it was just looked at");
                self.bytes -= chunk.packets.len();
                unsent.append(chunk.packets);
                // The CONNACK is the first answer.
                self.opening = false;
            }
            if self.opening {
                return;
            }
        }
    }
}

impl Chunk {
    fn is_free(&self, shards: &Shards) -> bool {
        shards.have_committed(&self.commits) && !self.rooms.iter().any(FullRoom::is_full)
    }
}
