//! Clients whose tenant has its entities at another broker.
//!
//! Which tenant a client belongs to is known only when it has proved who it is: with SASL, or with a token that it sends
//! over a link when the connection has long been open. So everything that it has sent until then is kept. If the other
//! broker gets the same, it answers the same, frame by frame; the client has some of these answers already.

use barid_amqp::{Error, SaslOutcome};

use super::container::Container;

/// Bytes that are kept of one client. A client that has sent more before it proves who it is cannot be passed on.
const RECEIVED_MAX: usize = 256 * 1024;

/// Length of a protocol header, and of the head of a frame, in bytes.
const HEAD: usize = 8;

/// The bytes of a client whose tenant is not known yet, and how much it has been answered.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// What the client has sent, as whole frames; nothing if that is too much.
    received: Vec<u8>,
    is_too_much: bool,
    /// Number of frames and protocol headers that the client has been sent, without those that are empty.
    sent: usize,
    /// Bytes of the last one that have not been sent yet.
    unsent: usize,
}

/// A client that is to be passed on to another broker.
#[derive(Debug)]
pub struct Leaving {
    /// The name of that broker.
    pub home: Box<str>,
    /// What the client has sent.
    pub received: Vec<u8>,
    /// Number of frames and protocol headers of that broker that the client already has, from this one.
    pub answered: usize,
    /// What the client is told if that broker cannot be reached.
    pub farewell: Vec<u8>,
}

impl Passing {
    pub fn note_received(&mut self, bytes: &[u8]) {
        self.is_too_much |= self.received.len() + bytes.len() > RECEIVED_MAX;
        match self.is_too_much {
            true => self.received = Vec::new(),
            false => self.received.extend_from_slice(bytes),
        }
    }

    pub fn received(&self) -> usize {
        self.received.len()
    }

    /// The first `bytes` bytes of the output are sent.
    pub fn note_sent(&mut self, output: &[u8], bytes: usize) {
        let mut at = self.unsent;
        while at < bytes {
            let Some(len) = frame_len(&output[at..]) else { break };
            self.sent += usize::from(!is_empty(&output[at..], len));
            at += len;
        }
        self.unsent = at.saturating_sub(bytes);
    }
}

impl Container {
    /// Keeps what passes from now on, so that the client can be passed on when its tenant is known.
    pub fn may_leave(&mut self) {
        self.passing = Some(Box::default());
    }

    /// Whether the client is to be passed on to another broker.
    pub fn leaves(&self) -> bool {
        self.leaves.is_some()
    }

    /// Returns what the other broker must know. `None`: the client cannot be passed on, since it has sent too much before
    /// it has proved who it is, or has not taken what it was sent.
    pub fn leave(&mut self) -> Option<Leaving> {
        let home = self.leaves.take()?;
        let passing = self.passing.take().filter(|it| !it.is_too_much && it.unsent == 0)?;
        self.engine.output().clear();
        self.engine.sasl_outcome(SaslOutcome::SysTemp);
        let text = format!("The broker {home}, which has the entities, cannot be reached.");
        self.engine.close(Some(Error::new("amqp:connection:forced", text)));
        let farewell = std::mem::take(self.engine.output());
        let Passing { received, sent, .. } = *passing;
        Some(Leaving { home, received, answered: sent, farewell })
    }
}

/// Returns the length of the frame or protocol header at the front; `None`: it is not there as a whole.
pub(super) fn frame_len(bytes: &[u8]) -> Option<usize> {
    let len = match bytes.first_chunk()? {
        b"AMQP" => HEAD,
        len => u32::from_be_bytes(*len) as usize,
    };
    (len >= HEAD && bytes.len() >= len).then_some(len)
}

/// Whether the frame at the front, of this length, only shows that the connection lives.
fn is_empty(bytes: &[u8], len: usize) -> bool {
    len == HEAD && !bytes.starts_with(b"AMQP")
}

/// Removes whole frames and protocol headers that a client already has, from what another broker sends to it. Whatever is
/// not whole yet is kept.
#[derive(Debug)]
pub struct Answered {
    left: usize,
    kept: Vec<u8>,
}

impl Answered {
    /// Removes this number of frames and headers, without those that are empty.
    pub fn new(count: usize) -> Self {
        Self { left: count, kept: Vec::new() }
    }

    /// Takes the next bytes. Returns those that are for the client, once everything has been removed; all further bytes are
    /// for the client then.
    pub fn take(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.kept.extend_from_slice(bytes);
        let mut at = 0;
        while self.left > 0 {
            let Some(len) = frame_len(&self.kept[at..]) else { break };
            self.left -= usize::from(!is_empty(&self.kept[at..], len));
            at += len;
        }
        self.kept.drain(..at);
        (self.left == 0).then(|| std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A protocol header, a frame with a byte, an empty frame, and a frame with two bytes.
    const FRAMES: &[u8] =
        b"AMQP\x03\x01\0\0\0\0\0\x09\x02\x01\0\0a\0\0\0\x08\x02\0\0\0\0\0\0\x0a\x02\0\0\0bc";

    #[test]
    fn frames_are_counted_however_they_are_sent() {
        for cut in 0..=FRAMES.len() {
            let mut passing = Passing::default();
            passing.note_sent(FRAMES, cut);
            let was_whole = passing.unsent == 0;
            passing.note_sent(&FRAMES[cut..], FRAMES.len() - cut);
            assert_eq!((passing.sent, passing.unsent), (3, 0), "cut at {cut}");
            assert_eq!(was_whole, [0, 8, 17, 25, 35].contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn no_more_is_kept_than_can_be_passed_on() {
        let mut passing = Passing::default();
        passing.note_received(&vec![0; RECEIVED_MAX]);
        assert_eq!((passing.received(), passing.is_too_much), (RECEIVED_MAX, false));
        passing.note_received(&[0]);
        passing.note_received(&[0]);
        assert_eq!((passing.received(), passing.is_too_much), (0, true));
    }

    #[test]
    fn what_was_answered_is_removed_however_it_comes() {
        for (count, rest) in [(0, 0), (1, 8), (2, 17), (3, 35)] {
            for cut in 0..=FRAMES.len() {
                let mut answered = Answered::new(count);
                let mut given = Vec::new();
                let mut is_over = false;
                for part in [&FRAMES[..cut], &FRAMES[cut..]] {
                    match is_over {
                        true => given.extend_from_slice(part),
                        false => {
                            if let Some(bytes) = answered.take(part) {
                                is_over = true;
                                given.extend(bytes);
                            }
                        }
                    }
                }
                assert!(is_over, "{count} cut at {cut}");
                assert_eq!(given, &FRAMES[rest..], "{count} cut at {cut}");
            }
        }
    }
}
