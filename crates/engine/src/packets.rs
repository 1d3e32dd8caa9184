//! Encoded packets on their way to one client.
//!
//! Small packets lie one behind another. A large payload is not copied: the packet is split before it, and
//! the payload stays in its message, which all recipients share. So a thousand clients that do not read share
//! one copy.

use std::collections::VecDeque;
use std::sync::Arc;

use barid_core::message::Message;

/// Size of a payload, in bytes, from which it is shared. Below, a copy is cheaper than a separate write.
pub const SHARED_FROM: usize = 16 * 1024;

/// Packets in order. Some bytes at the beginning may have been written already.
#[derive(Debug, Default)]
pub struct Packets {
    /// The pieces before `tail`; present only while a shared payload waits.
    before: Option<Box<Before>>,
    tail: Vec<u8>,
    /// Number of bytes of `tail` that have been written.
    start: usize,
}

#[derive(Debug, Default)]
struct Before {
    pieces: VecDeque<Piece>,
    /// Unwritten bytes of all pieces together.
    len: usize,
}

#[derive(Debug)]
enum Piece {
    Bytes { bytes: Vec<u8>, start: usize },
    Payload { message: Arc<Message>, start: usize },
}

impl Packets {
    /// Number of bytes that have not been written.
    pub fn len(&self) -> usize {
        self.before.as_ref().map_or(0, |before| before.len) + self.tail.len() - self.start
    }

    /// Whether all bytes have been written.
    pub fn is_empty(&self) -> bool {
        self.before.is_none() && self.tail.len() == self.start
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// The buffer to whose end packets are encoded.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends the payload of a message without its first `start` bytes. The payload is shared.
    pub fn push_payload(&mut self, message: Arc<Message>, start: usize) {
        let tail = Piece::Bytes { bytes: std::mem::take(&mut self.tail), start: self.start };
        self.start = 0;
        let before = self.before.get_or_insert_default();
        before.push(tail);
        before.push(Piece::Payload { message, start });
        if before.pieces.is_empty() {
            self.before = None;
        }
    }

    /// Appends the unwritten bytes of `others`.
    pub fn append(&mut self, others: Self) {
        if self.is_empty() {
            *self = others;
            return;
        }
        if let Some(pieces) = others.before {
            let tail = Piece::Bytes { bytes: std::mem::take(&mut self.tail), start: self.start };
            self.start = 0;
            let before = self.before.get_or_insert_default();
            before.push(tail);
            pieces.pieces.into_iter().for_each(|piece| before.push(piece));
        }
        self.tail.extend_from_slice(&others.tail[others.start..]);
    }

    /// Puts back bytes that could not be written, in front of those that were appended meanwhile.
    pub fn put_back(&mut self, mut rest: Self) {
        rest.append(std::mem::take(self));
        *self = rest;
    }

    /// Takes all packets, and leaves none.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The next bytes to write, all or some of them; empty if there are none.
    pub fn chunk(&self) -> &[u8] {
        match self.before.as_ref().and_then(|before| before.pieces.front()) {
            Some(piece) => piece.as_slice(),
            None => &self.tail[self.start..],
        }
    }

    /// Notes that the first `written` bytes of the [chunk](Self::chunk) have been written.
    pub fn advance(&mut self, written: usize) {
        let Some(before) = &mut self.before else {
            self.start += written;
            return;
        };
        before.len -= written;
        if let Some(front) = before.pieces.front_mut() {
            *front.start_mut() += written;
            if front.as_slice().is_empty() {
                before.pieces.pop_front();
            }
        }
        if before.pieces.is_empty() {
            self.before = None;
        }
    }
}

impl Before {
    /// Appends a piece, unless it is empty.
    fn push(&mut self, piece: Piece) {
        let len = piece.as_slice().len();
        if len > 0 {
            self.len += len;
            self.pieces.push_back(piece);
        }
    }
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes { bytes, start } => &bytes[*start..],
            Self::Payload { message, start } => &message.publication().payload[*start..],
        }
    }

    fn start_mut(&mut self) -> &mut usize {
        match self {
            Self::Bytes { start, .. } | Self::Payload { start, .. } => start,
        }
    }
}

#[cfg(test)]
mod tests {
    use barid_core::message::Publication;
    use mqtt_proto::QoS;
    use proptest::prelude::*;

    use super::*;

    fn message(payload: &[u8]) -> Arc<Message> {
        Arc::new(Message::new(&Publication {
            topic: "t",
            payload,
            properties: &[],
            qos: QoS::AtMostOnce,
            retain: false,
            expires_at: None,
        }))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        Payload(Vec<u8>, usize),
        Write(usize),
        /// Takes all packets, appends other bytes, writes at most so many of the taken bytes, and puts the
        /// rest back.
        TakeAndPutBack(usize, Vec<u8>),
        Append(Vec<u8>, Vec<u8>, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
        proptest::collection::vec(
            prop_oneof![
                bytes().prop_map(Step::Push),
                (bytes(), 0..30usize).prop_map(|(payload, start)| Step::Payload(payload, start)),
                (0..40usize).prop_map(Step::Write),
                (0..40usize, bytes()).prop_map(|(n, later)| Step::TakeAndPutBack(n, later)),
                (bytes(), bytes(), 0..20usize).prop_map(|(a, b, n)| Step::Append(a, b, n)),
            ],
            0..40,
        )
    }

    fn write(packets: &mut Packets, mut most: usize) -> Vec<u8> {
        let mut written = Vec::new();
        while most > 0 && !packets.chunk().is_empty() {
            let n = packets.chunk().len().min(most);
            written.extend_from_slice(&packets.chunk()[..n]);
            packets.advance(n);
            most -= n;
        }
        written
    }

    proptest! {
        #[test]
        fn bytes_leave_in_the_order_in_which_they_came(steps in steps()) {
            let (mut packets, mut model) = (Packets::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        packets.push(&bytes);
                        model.extend(bytes);
                    }
                    Step::Payload(payload, start) => {
                        let start = start.min(payload.len());
                        packets.push_payload(message(&payload), start);
                        model.extend(&payload[start..]);
                    }
                    Step::Write(most) => {
                        let n = most.min(model.len());
                        let expected: Vec<u8> = model.drain(..n).collect();
                        prop_assert_eq!(write(&mut packets, most), expected);
                    }
                    Step::TakeAndPutBack(most, later) => {
                        let mut taken = packets.take();
                        prop_assert!(packets.is_empty());
                        packets.push(&later);
                        let n = most.min(model.len());
                        let expected: Vec<u8> = model.drain(..n).collect();
                        prop_assert_eq!(write(&mut taken, most), expected);
                        packets.put_back(taken);
                        model.extend(later);
                    }
                    Step::Append(first, payload, most) => {
                        let mut others = Packets::default();
                        others.push(&first);
                        others.push_payload(message(&payload), 0);
                        others.push(&first);
                        let all = [&first[..], &payload, &first].concat();
                        write(&mut others, most);
                        packets.append(others);
                        model.extend(&all[most.min(all.len())..]);
                    }
                }
                prop_assert_eq!(packets.len(), model.len());
                prop_assert_eq!(packets.is_empty(), model.is_empty());
                prop_assert_eq!(packets.chunk().is_empty(), model.is_empty());
            }
            let len = model.len();
            prop_assert_eq!(write(&mut packets, len), model);
            prop_assert!(packets.is_empty());
        }
    }

    #[test]
    fn an_idle_client_takes_no_more_than_a_buffer_would() {
        assert!(size_of::<Packets>() <= size_of::<Vec<u8>>() + 16);
    }
}
