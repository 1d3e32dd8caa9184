//! A message that is encoded once, with its frames, and sent many times.

use anyhow::Context as _;
use barid_amqp::frame::{self, Performative, Transfer};
use barid_amqp::message::{Builder, Field, ValueRef};

/// Data at the beginning of a message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub run: u32,
    pub session: u32,
    pub number: u64,
    /// Microsecond at which the message should have been sent.
    pub due: u64,
}

/// Size of a [`Stamp`] in bytes.
const STAMP: usize = 24;

/// Minimum size of a body: it must hold a [`Stamp`].
pub const SIZE_MIN: i64 = STAMP as i64;

/// Upper bound for the bytes of a frame besides the message.
const OVERHEAD: usize = 64;

const ID: u32 = u32::MAX;
const TAG: [u8; 8] = [0xEE; 8];
const MESSAGE_ID: &str = "message-################";
const SESSION: &str = "session-#######";
const MARKS: [u8; STAMP] = [0xDD; STAMP];

/// Frames of a message. The fields that vary are all in the first frame.
pub struct Template {
    bytes: Vec<u8>,
    pub frames: u32,
    id_at: usize,
    tag_at: usize,
    message_id_at: usize,
    session_at: usize,
    stamp_at: usize,
}

impl Template {
    /// Encodes a message with a body of `size` bytes, in frames of at most `frame_max` bytes.
    pub fn new(size: usize, frame_max: usize) -> anyhow::Result<Self> {
        let mut body = vec![b'.'; size];
        body[..STAMP].copy_from_slice(&MARKS);
        let mut message = Vec::new();
        Builder::new()
            .durable(true)
            .property(Field::MessageId, ValueRef::String(MESSAGE_ID))
            .property(Field::GroupId, ValueRef::String(SESSION))
            .data(&body, &mut message);
        let mut bytes = Vec::new();
        let chunks = message.chunks(frame_max.saturating_sub(OVERHEAD).max(OVERHEAD));
        let frames = chunks.len();
        for (index, chunk) in chunks.enumerate() {
            let transfer = Transfer {
                handle: 0,
                delivery_id: (index == 0).then_some(ID),
                tag: (index == 0).then(|| TAG[..].try_into()).transpose()?,
                message_format: (index == 0).then_some(0),
                settled: Some(false),
                more: index + 1 < frames,
                ..Transfer::default()
            };
            frame::encode(&mut bytes, 0, &Performative::Transfer(transfer), chunk);
        }
        let find = |wanted: &[u8]| {
            let found = bytes.windows(wanted.len()).position(|window| window == wanted);
            found.context(
                "the maximum frame size of the broker is too small for the header of a message",
            )
        };
        Ok(Self {
            id_at: find(&ID.to_be_bytes())?,
            tag_at: find(&TAG)?,
            message_id_at: find(MESSAGE_ID.as_bytes())? + MESSAGE_ID.find('#').unwrap_or(0),
            session_at: find(SESSION.as_bytes())? + SESSION.find('#').unwrap_or(0),
            stamp_at: find(&MARKS)?,
            frames: frames as u32,
            bytes,
        })
    }

    /// Appends a message.
    pub fn append(&self, id: u32, stamp: &Stamp, output: &mut Vec<u8>) {
        let start = output.len();
        output.extend_from_slice(&self.bytes);
        let bytes = &mut output[start..];
        bytes[self.id_at..self.id_at + 4].copy_from_slice(&id.to_be_bytes());
        bytes[self.tag_at..self.tag_at + 4].copy_from_slice(&id.to_be_bytes());
        let message = (u64::from(stamp.session) << 40) | (stamp.number & ((1 << 40) - 1));
        put_hex(&mut bytes[self.message_id_at..self.message_id_at + 16], message);
        put_hex(&mut bytes[self.session_at..self.session_at + 7], stamp.session.into());
        stamp.put(&mut bytes[self.stamp_at..self.stamp_at + STAMP]);
    }
}

impl Stamp {
    fn put(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..].copy_from_slice(&self.due.to_be_bytes());
    }

    /// Reads the stamp of a message whose last `size` bytes are its body.
    pub fn of(message: &[u8], size: usize) -> Option<Self> {
        let body = message.get(message.len().checked_sub(size)?..)?;
        let (run, rest) = body.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (due, _) = rest.split_first_chunk()?;
        Some(Self {
            run: u32::from_be_bytes(*run),
            session: u32::from_be_bytes(*session),
            number: u64::from_be_bytes(*number),
            due: u64::from_be_bytes(*due),
        })
    }
}

/// Fills `digits` with a number in hexadecimal, with leading zeros.
fn put_hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barid_amqp::frame::Body;
    use barid_amqp::message::Sections;

    #[test]
    fn messages_of_one_frame_and_of_many_carry_their_stamp() {
        for (size, frames) in [(1_024, 1), (10_000, 3)] {
            let template = Template::new(size, 4_096).unwrap();
            assert_eq!(template.frames, frames);
            let stamp = Stamp { run: 1, session: 0xABC, number: 3, due: 4 };
            let mut output = Vec::new();
            template.append(7, &stamp, &mut output);
            let (mut rest, mut message) = (&output[..], Vec::new());
            while let Some(length) = frame::length(rest).unwrap() {
                assert!(length <= 4_096);
                let (one, behind) = rest.split_at(length);
                rest = behind;
                let Body::Amqp(Performative::Transfer(transfer), payload) =
                    frame::decode(one).unwrap().body
                else {
                    panic!("no transfer")
                };
                assert_eq!(transfer.delivery_id, message.is_empty().then_some(7));
                assert_eq!(transfer.more, !rest.is_empty());
                message.extend_from_slice(payload);
            }
            assert_eq!(Stamp::of(&message, size), Some(stamp));
            let properties = Sections::split(&message).unwrap().properties();
            assert_eq!(properties.group_id(), Some("session-0000abc"));
            let id = properties.message_id();
            assert_eq!(id.as_deref(), Some("message-000abc0000000003"));
        }
    }
}
