//! WebSocket frames as a server reads and writes them (RFC 6455 §5).
//!
//! MQTT and AMQP do not depend on frame boundaries, so payload is passed on as it arrives. A frame is never
//! buffered, no matter what length its header announces. The cost of a frame is its header: all bytes of one
//! read are decoded in one pass, in the caller's own buffer.

use thiserror::Error;
use tungstenite::protocol::frame::coding::CloseCode;

/// Maximum length of a header, in bytes: flags and length, 64 bits of extended length, masking key.
const HEADER_MAX: usize = 2 + 8 + 4;

/// Maximum payload of a control frame, in bytes (§5.5).
const CONTROL_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED_BITS: u8 = 0x70;
const MASKED: u8 = 0x80;

/// The opcode of a frame (§5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0x0,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

/// A violation of the WebSocket protocol by the peer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The peer sent a text frame.
    #[error("a WebSocket text frame; MQTT and AMQP need binary frames (MQTT-6.0.0-1)")]
    Text,
    /// The peer used an opcode that the standard reserves.
    #[error("a WebSocket frame with a reserved opcode")]
    ReservedOpcode,
    /// The peer set a reserved bit, of an extension that was not negotiated.
    #[error("a WebSocket frame with a reserved bit")]
    ReservedBit,
    /// The peer did not mask a frame, as a client must (§5.1).
    #[error("a WebSocket frame without a mask")]
    NotMasked,
    /// The peer announced a length with the highest bit set (§5.2).
    #[error("a WebSocket frame with a length beyond 63 bits")]
    Length,
    /// The peer sent a control frame that is fragmented or too long (§5.5).
    #[error("a WebSocket control frame that is fragmented, or longer than 125 bytes")]
    Control,
    /// The peer sent a continuation without a message, or a message within another (§5.4).
    #[error("WebSocket fragments out of order")]
    Fragments,
}

impl FrameError {
    /// Returns the status code for the peer (§7.4.1).
    pub(super) fn close_code(self) -> CloseCode {
        match self {
            Self::Text => CloseCode::Unsupported,
            _ => CloseCode::Protocol,
        }
    }
}

/// Finds the payload in the bytes that a client sends. Takes less than 400 bytes of memory, no matter what
/// arrives.
#[derive(Debug)]
pub struct Decoder {
    /// The part of a header that has arrived.
    header: [u8; HEADER_MAX],
    header_len: usize,
    /// The frame whose payload is arriving; `None`: a header is next.
    frame: Option<Frame>,
    /// Whether a message has begun, and its last fragment has not arrived.
    in_message: bool,
    /// The payload of the control frame that is arriving.
    control: Control,
    /// The payload of the last ping.
    ping: Control,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: Opcode,
    /// Bytes of payload that are still to come.
    rest: u64,
    /// The masking key, rotated to the next byte of payload.
    mask: [u8; 4],
}

/// The payload of a control frame.
#[derive(Clone, Copy, Debug)]
struct Control {
    bytes: [u8; CONTROL_MAX],
    len: usize,
}

/// The result of decoding some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Number of bytes of payload, which are now at the start of the buffer.
    pub payload: usize,
    /// Whether one or more pings have arrived. `Decoder::ping` is the payload of the last one, which is the
    /// only one that has to be answered (§5.5.3).
    pub ping: bool,
    /// Whether the client has begun the closing handshake. The bytes after that are ignored.
    pub closed: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            header: [0; HEADER_MAX],
            header_len: 0,
            frame: None,
            in_message: false,
            control: Control::EMPTY,
            ping: Control::EMPTY,
        }
    }
}

impl Decoder {
    /// Decodes `bytes`, which follow those of the last call, and moves the payload in them to their start.
    pub fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, FrameError> {
        let mut decoded = Decoded::default();
        let mut at = 0;
        loop {
            let frame = match &mut self.frame {
                Some(frame) => frame,
                None => match self.read_header(&bytes[at..])? {
                    (taken, Some(frame)) => {
                        at += taken;
                        self.frame.insert(frame)
                    }
                    (_, None) => return Ok(decoded),
                },
            };
            let here = usize::try_from(frame.rest).unwrap_or(usize::MAX).min(bytes.len() - at);
            unmask(&mut bytes[at..at + here], &mut frame.mask);
            frame.rest -= here as u64;
            match frame.opcode {
                Opcode::Binary | Opcode::Continuation => {
                    bytes.copy_within(at..at + here, decoded.payload);
                    decoded.payload += here;
                }
                Opcode::Ping | Opcode::Pong | Opcode::Close => {
                    self.control.push(&bytes[at..at + here]);
                }
            }
            at += here;
            if frame.rest > 0 {
                return Ok(decoded);
            }
            let opcode = frame.opcode;
            self.frame = None;
            match opcode {
                Opcode::Ping => {
                    self.ping = self.control;
                    decoded.ping = true;
                }
                Opcode::Close => {
                    decoded.closed = true;
                    return Ok(decoded);
                }
                Opcode::Binary | Opcode::Continuation | Opcode::Pong => {}
            }
        }
    }

    /// Returns the payload of the last ping.
    pub(super) fn ping(&self) -> &[u8] {
        &self.ping.bytes[..self.ping.len]
    }

    /// Continues to read the header of the next frame. Returns the number of bytes taken, and the frame if
    /// its header is complete. If it is not, all bytes are taken.
    fn read_header(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), FrameError> {
        let before = self.header_len;
        let here = bytes.len().min(HEADER_MAX - before);
        self.header[before..before + here].copy_from_slice(&bytes[..here]);
        let known = &self.header[..before + here];
        self.header_len = known.len();
        let [first, second, ..] = *known else { return Ok((here, None)) };
        let (opcode, fin) = self.check(first, second)?;
        let length = second & !MASKED;
        let extended = match length {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(mask) = known.get(2 + extended..2 + extended + 4) else { return Ok((here, None)) };
        let mask = mask.try_into().expect("it is four bytes");
        let rest = match extended {
            0 => u64::from(length),
            _ => {
                known[2..2 + extended].iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
            }
        };
        if rest >> 63 != 0 {
            return Err(FrameError::Length);
        }
        match opcode {
            Opcode::Binary | Opcode::Continuation => self.in_message = !fin,
            Opcode::Ping | Opcode::Pong | Opcode::Close => self.control.len = 0,
        }
        self.header_len = 0;
        Ok((2 + extended + 4 - before, Some(Frame { opcode, rest, mask })))
    }

    /// Checks the first two bytes of a header. Returns the opcode, and whether the frame ends its message.
    fn check(&self, first: u8, second: u8) -> Result<(Opcode, bool), FrameError> {
        let fin = first & FIN != 0;
        let opcode = match first & 0x0F {
            0x0 => Opcode::Continuation,
            0x1 => return Err(FrameError::Text),
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xA => Opcode::Pong,
            _ => return Err(FrameError::ReservedOpcode),
        };
        if first & RESERVED_BITS != 0 {
            return Err(FrameError::ReservedBit);
        }
        if second & MASKED == 0 {
            return Err(FrameError::NotMasked);
        }
        match opcode {
            Opcode::Binary if self.in_message => Err(FrameError::Fragments),
            Opcode::Continuation if !self.in_message => Err(FrameError::Fragments),
            Opcode::Binary | Opcode::Continuation => Ok((opcode, fin)),
            _ if !fin || usize::from(second & !MASKED) > CONTROL_MAX => Err(FrameError::Control),
            _ => Ok((opcode, fin)),
        }
    }
}

impl Control {
    const EMPTY: Self = Self { bytes: [0; CONTROL_MAX], len: 0 };

    /// Appends `bytes`. There is room, because the header was checked.
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

/// Removes the mask, and rotates the key to the byte that comes next.
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    let wide = u64::from_ne_bytes(std::array::from_fn(|at| mask[at % 4]));
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        let unmasked = u64::from_ne_bytes((&*word).try_into().expect("it is eight bytes")) ^ wide;
        word.copy_from_slice(&unmasked.to_ne_bytes());
    }
    let rest = words.into_remainder();
    rest.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
    mask.rotate_left(bytes.len() % 4);
}

/// Appends a complete frame. A server does not mask (§5.1).
pub(super) fn put(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.push(FIN | opcode as u8);
    match payload.len() {
        length @ 0..=125 => out.push(length as u8),
        length @ 126..=0xFFFF => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a frame as a client sends it.
    fn masked(first: u8, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..=125 => frame.push(MASKED | length as u8),
            length @ 126..=0xFFFF => {
                frame.push(MASKED | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                frame.push(MASKED | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        frame
    }

    fn decode_all(bytes: &[u8]) -> Result<(Vec<u8>, Decoded), FrameError> {
        let mut bytes = bytes.to_vec();
        let decoded = Decoder::default().decode(&mut bytes)?;
        bytes.truncate(decoded.payload);
        Ok((bytes, decoded))
    }

    #[test]
    fn control_frames_may_stand_between_fragments() {
        let mut sent = masked(0x02, *b"abcd", b"one ");
        sent.extend(masked(0x89, *b"efgh", b"are you there?"));
        sent.extend(masked(0x00, *b"ijkl", b"two "));
        sent.extend(masked(0x80, *b"mnop", b"three"));
        let mut decoder = Decoder::default();
        let decoded = decoder.decode(&mut sent).unwrap();
        assert_eq!(&sent[..decoded.payload], b"one two three");
        assert!(decoded.ping && !decoded.closed);
        assert_eq!(decoder.ping(), b"are you there?");
    }

    #[test]
    fn nothing_counts_behind_a_close() {
        let mut sent = masked(0x82, *b"abcd", b"last words");
        sent.extend(masked(0x88, *b"abcd", &1000u16.to_be_bytes()));
        sent.extend(b"noise");
        let (payload, decoded) = decode_all(&sent).unwrap();
        assert_eq!(payload, b"last words");
        assert!(decoded.closed);
    }

    #[test]
    fn what_the_standard_forbids_is_told_apart() {
        let key = *b"abcd";
        let long = vec![0; 126];
        for (sent, error) in [
            (masked(0x81, key, b"text"), FrameError::Text),
            (masked(0x83, key, b""), FrameError::ReservedOpcode),
            (masked(0x8B, key, b""), FrameError::ReservedOpcode),
            (masked(0xC2, key, b""), FrameError::ReservedBit),
            (vec![0x82, 0x00], FrameError::NotMasked),
            (vec![0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], FrameError::Length),
            (masked(0x09, key, b""), FrameError::Control),
            (masked(0x89, key, &long), FrameError::Control),
            (masked(0x80, key, b""), FrameError::Fragments),
            ([masked(0x02, key, b""), masked(0x82, key, b"")].concat(), FrameError::Fragments),
        ] {
            assert_eq!(decode_all(&sent).unwrap_err(), error, "{sent:02x?}");
        }
    }

    #[test]
    fn a_length_alone_costs_nothing() {
        let mut decoder = Decoder::default();
        let mut header = vec![0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0];
        assert_eq!(decoder.decode(&mut header).unwrap(), Decoded::default());
        assert!(size_of::<Decoder>() < 400);
    }

    #[test]
    fn what_is_put_can_be_read_by_the_library() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 100_000] {
            let payload: Vec<u8> = (0..length).map(|at: usize| at as u8).collect();
            let mut out = Vec::new();
            put(Opcode::Binary, &payload, &mut out);
            put(Opcode::Pong, b"ping", &mut out);
            let stream = std::io::Cursor::new(out);
            let role = tungstenite::protocol::Role::Client;
            let mut client = tungstenite::WebSocket::from_raw_socket(stream, role, None);
            assert_eq!(client.read().unwrap().into_data(), payload);
            assert_eq!(client.read().unwrap(), tungstenite::Message::Pong(b"ping".to_vec().into()));
        }
    }

    #[derive(Clone, Debug)]
    enum Sent {
        Binary(Vec<u8>, bool),
        Ping(Vec<u8>),
        Pong(Vec<u8>),
    }

    fn sent() -> impl Strategy<Value = Vec<(Sent, [u8; 4])>> {
        let small = || proptest::collection::vec(any::<u8>(), 0..126);
        let any_size = proptest::collection::vec(any::<u8>(), 0..300);
        let frame = prop_oneof![
            (any_size, any::<bool>()).prop_map(|(payload, fin)| Sent::Binary(payload, fin)),
            small().prop_map(Sent::Ping),
            small().prop_map(Sent::Pong),
        ];
        proptest::collection::vec((frame, any::<[u8; 4]>()), 0..20)
    }

    proptest! {
        /// The payload is the same no matter where reads end.
        #[test]
        fn payload_arrives_however_the_bytes_are_cut(frames in sent(), cuts in proptest::collection::vec(1..40usize, 1..200)) {
            let mut wire = Vec::new();
            let mut expected = Vec::new();
            let mut in_message = false;
            for (frame, mask) in &frames {
                match frame {
                    Sent::Binary(payload, fin) => {
                        let opcode = if in_message { 0x0 } else { 0x2 };
                        in_message = !fin;
                        wire.extend(masked(opcode | if *fin { FIN } else { 0 }, *mask, payload));
                        expected.extend_from_slice(payload);
                    }
                    Sent::Ping(payload) => wire.extend(masked(0x89, *mask, payload)),
                    Sent::Pong(payload) => wire.extend(masked(0x8A, *mask, payload)),
                }
            }
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            let mut rest = &wire[..];
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                let mut bytes = now.to_vec();
                let decoded = decoder.decode(&mut bytes).unwrap();
                found.extend_from_slice(&bytes[..decoded.payload]);
                rest = later;
            }
            prop_assert_eq!(found, expected);
        }
    }
}
