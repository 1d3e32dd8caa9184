//! Messages on their way to another broker: those that have not been sent, and those that it has not acknowledged.
//!
//! They are kept in the order in which they were added. When a connection of the link breaks, everything that was not
//! acknowledged is sent again on the next one; the other broker knows by the sequence number what it has already.

use std::collections::VecDeque;

use crate::frame::{Destination, Frame, Run, decode};

/// Number of bytes from which on nothing is added that may be lost.
const LOSSY_MAX: usize = 4 * 1024 * 1024;

/// Number of bytes from which on nothing is added.
const ALL_MAX: usize = 32 * 1024 * 1024;

/// The runs of a message link.
#[derive(Debug)]
pub struct Outgoing {
    bytes: VecDeque<u8>,
    /// Number of bytes at the front that the present connection has taken.
    sent: usize,
    /// The length of each frame in `bytes`.
    lens: VecDeque<usize>,
    /// The sequence number of the first frame in `bytes`.
    first: u64,
    /// All frames up to this one are acknowledged.
    acknowledged: u64,
    /// Memory for the head of a frame.
    head: Vec<u8>,
}

impl Default for Outgoing {
    fn default() -> Self {
        let (bytes, lens) = (VecDeque::new(), VecDeque::new());
        Self { bytes, sent: 0, lens, first: 1, acknowledged: 0, head: Vec::new() }
    }
}

impl Outgoing {
    /// Whether there is room for more messages. There is less room for messages that may be lost (QoS 0), so that they
    /// do not keep out others.
    pub fn has_room(&self, may_be_lost: bool) -> bool {
        self.bytes.len() < if may_be_lost { LOSSY_MAX } else { ALL_MAX }
    }

    /// Adds a run; its [sequence number](Run::sequence) is assigned here, and returned.
    pub fn add(&mut self, run: Run<'_>) -> u64 {
        let sequence = self.first + self.lens.len() as u64;
        self.head.clear();
        Run { sequence, ..run }.encode_before(run.packets.len(), &mut self.head);
        self.bytes.extend(self.head.iter());
        self.bytes.extend(run.packets.iter());
        self.lens.push_back(self.head.len() + run.packets.len());
        sequence
    }

    /// The bytes that are to be sent next. More may follow.
    pub fn unsent(&self) -> &[u8] {
        let (front, back) = self.bytes.as_slices();
        match front.get(self.sent..) {
            Some(front) if !front.is_empty() => front,
            _ => back.get(self.sent - front.len()..).unwrap_or_default(),
        }
    }

    /// The connection has taken so many of the bytes.
    pub fn note_sent(&mut self, count: usize) {
        self.sent += count;
        debug_assert!(self.sent <= self.bytes.len());
        self.forget_acknowledged();
    }

    /// All runs up to this one are acknowledged. Returns false if that is impossible: there is no such run.
    #[must_use]
    pub fn acknowledge(&mut self, sequence: u64) -> bool {
        if sequence >= self.first + self.lens.len() as u64 {
            return false;
        }
        self.acknowledged = self.acknowledged.max(sequence);
        self.forget_acknowledged();
        true
    }

    fn forget_acknowledged(&mut self) {
        while self.first <= self.acknowledged {
            let len = self.lens[0];
            // A frame whose front is sent must be sent as a whole. One of which nothing is sent need not be: the other
            // broker has it from an earlier connection.
            if (1..len).contains(&self.sent) {
                return;
            }
            self.lens.pop_front();
            self.bytes.drain(..len);
            self.sent = self.sent.saturating_sub(len);
            self.first += 1;
        }
        if self.bytes.is_empty() && self.bytes.capacity() > LOSSY_MAX {
            self.bytes.shrink_to(0);
        }
    }

    /// Another connection begins: everything that was not acknowledged is sent again.
    pub fn restart(&mut self) {
        self.sent = 0;
    }

    /// Forgets all messages, because the other broker is down. Calls `forgotten` with each run. Returns the sequence number of the
    /// last one, and how many there were.
    pub fn clear(&mut self, mut forgotten: impl FnMut(Run<'_>)) -> (u64, usize) {
        let count = self.lens.len();
        let mut frames = &*self.bytes.make_contiguous();
        for len in &self.lens {
            let (frame, rest) = frames.split_at(*len);
            frames = rest;
            if let Ok(Some((Frame::Run(run), _))) = decode(frame, usize::MAX) {
                forgotten(run);
            }
        }
        self.first += count as u64;
        self.lens.clear();
        self.bytes = VecDeque::new();
        self.sent = 0;
        (self.first - 1, count)
    }

    /// The sequence number of the last run that was added.
    pub fn last(&self) -> u64 {
        self.first + self.lens.len() as u64 - 1
    }

    /// Number of bytes that wait to be sent or acknowledged.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether everything has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }
}

impl<'a> Run<'a> {
    /// Whether somebody may wait until the run is done. Nobody waits for messages of QoS 0, or for what a client is told that
    /// has asked the state store.
    pub fn is_awaited(&self) -> bool {
        let is_qos0 = self.packets.first().is_some_and(|flags| flags & 0b110 == 0);
        match self.to {
            Destination::Sessions | Destination::Shared(_) => !is_qos0,
            Destination::StateStore(_) | Destination::OldSession(_) => true,
            Destination::Inquirer(_) => false,
        }
    }

    /// Messages without a sequence number, to be [added](Outgoing::add).
    pub fn unnumbered(
        tenant: &'a str,
        publisher: &'a str,
        to: Destination<'a>,
        is_v5: bool,
        packets: &'a [u8],
    ) -> Self {
        Self { sequence: 0, tenant, publisher, to, is_v5, retaining: None, packets }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(packets: &[u8]) -> Run<'_> {
        Run::unnumbered("t", "c", Destination::Sessions, true, packets)
    }

    #[test]
    fn room_for_what_may_be_lost_ends_first() {
        let mut outgoing = Outgoing::default();
        while outgoing.has_room(true) {
            outgoing.add(run(&[0; 100_000]));
        }
        assert!(outgoing.has_room(false));
        while outgoing.has_room(false) {
            outgoing.add(run(&[0; 100_000]));
        }
        let shared = Run { to: Destination::Shared("$share/g/a"), ..run(b"packet") };
        let number = outgoing.add(shared);
        let mut forgotten = Vec::new();
        let (last, count) =
            outgoing.clear(|run| forgotten.push((run.sequence, run.packets.to_vec())));
        assert_eq!(forgotten.last(), Some(&(number, b"packet".to_vec())));
        assert_eq!((last, forgotten.len()), (count as u64, count));
        assert_eq!(outgoing.add(run(b"")), last + 1);
        assert!(!outgoing.acknowledge(last + 2), "there is no such run");
    }

    proptest! {
        /// The other broker gets everything, in order, whatever breaks.
        #[test]
        fn nothing_is_missing(steps in proptest::collection::vec((0..4_u8, 1..300_usize), 1..200)) {
            let mut outgoing = Outgoing::default();
            let (mut added, mut heard, mut received) = (0_u64, 0_u64, Vec::<u8>::new());
            let end = (0..2_000).map(|step| (if step % 2 == 0 { 1 } else { 2 }, 299));
            for (what, count) in steps.into_iter().chain(end) {
                match what {
                    0 => {
                        added += 1;
                        let packets = vec![added as u8; count];
                        prop_assert_eq!(outgoing.add(run(&packets)), added);
                    }
                    1 => {
                        let unsent = outgoing.unsent();
                        let count = count.min(unsent.len());
                        received.extend_from_slice(&unsent[..count]);
                        outgoing.note_sent(count);
                    }
                    2 => {
                        while let Some((frame, len)) = decode(&received, 10_000).unwrap() {
                            let Frame::Run(run) = frame else { panic!("it is a run") };
                            prop_assert!(run.sequence <= heard + 1, "one is missing");
                            prop_assert!(run.packets.iter().all(|byte| *byte == run.sequence as u8));
                            heard = heard.max(run.sequence);
                            received.drain(..len);
                        }
                        prop_assert!(outgoing.acknowledge(heard));
                    }
                    _ => {
                        // The connection breaks.
                        received.clear();
                        outgoing.restart();
                    }
                }
            }
            prop_assert_eq!((heard, outgoing.is_empty(), outgoing.len()), (added, true, 0));
        }
    }
}
