//! Frames (2.3) and the performatives in them, for both directions.
//!
//! ```
//! use barid_amqp::frame::{self, Body, Flow, Performative};
//!
//! let mut bytes = Vec::new();
//! let flow = Flow { link_credit: Some(10), handle: Some(0), ..Flow::default() };
//! frame::encode(&mut bytes, 1, &Performative::Flow(flow.clone()), &[]);
//!
//! assert_eq!(frame::length(&bytes), Ok(Some(bytes.len())));
//! let frame = frame::decode(&bytes).unwrap();
//! assert_eq!(frame.channel, 1);
//! assert_eq!(frame.body, Body::Amqp(Performative::Flow(flow), &[]));
//! ```
//!
//! All fields of a performative are written, null ones at the end too: some clients read them by
//! position.

mod attach;
mod composite;
mod connection;
mod delivery_state;
mod disposition;
mod error;
mod flow;
mod sasl;
mod session;
mod tag;
mod terminus;
mod transfer;

pub use attach::{Attach, Detach, ReceiverSettles, Role, SenderSettles};
pub use connection::{Close, Open};
pub use delivery_state::{DeliveryState, Modified};
pub use disposition::Disposition;
pub use flow::Flow;
pub use sasl::Sasl;
pub use session::{Begin, End};
pub use tag::Tag;
pub use terminus::Terminus;
pub use transfer::Transfer;

use self::composite::Composite;
use crate::message;
use crate::wire::Writer;

/// The protocol header of AMQP 1.0.
pub const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
/// The protocol header of SASL.
pub const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// Lower bound of the maximum frame size that a container may announce, in bytes.
pub const MIN_MAX_FRAME_SIZE: u32 = 512;

/// Size of a frame's header, in bytes. An empty frame has this size and shows that its sender is
/// alive.
pub const HEADER_SIZE: usize = 8;

const TYPE_AMQP: u8 = 0;
const TYPE_SASL: u8 = 1;

/// Reason why bytes are not a frame, or not the one that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Bytes that are not a well-formed value.
    #[error("malformed frame: {0}")]
    Value(#[from] message::Malformed),
    /// A field is missing or has a wrong type or value.
    #[error("malformed {0}")]
    Field(&'static str),
}

/// A frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    /// Channel of the session; 0 for frames about the connection.
    pub channel: u16,
    /// Contents of the frame.
    pub body: Body<'a>,
}

/// Contents of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Body<'a> {
    /// Nothing: the frame only shows that the peer is alive.
    Empty,
    /// A performative and its payload.
    Amqp(Performative, &'a [u8]),
    /// A SASL frame.
    Sasl(Sasl),
}

/// The nine performatives (2.7).
#[derive(Debug, Clone, PartialEq)]
pub enum Performative {
    /// Begins a connection.
    Open(Box<Open>),
    /// Begins a session.
    Begin(Box<Begin>),
    /// Begins a link.
    Attach(Box<Attach>),
    /// Windows of a session, and credit of a link.
    Flow(Flow),
    /// A message or a piece of one.
    Transfer(Transfer),
    /// The state of deliveries.
    Disposition(Disposition),
    /// Ends a link.
    Detach(Detach),
    /// Ends a session.
    End(End),
    /// Ends a connection.
    Close(Close),
}

/// Returns the length of the frame at the front of `bytes`, header included; `None` if there are
/// fewer than four bytes. Never less than [`HEADER_SIZE`].
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(size) = bytes.first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*size) as usize;
    if length < HEADER_SIZE {
        return Err(Malformed::Field("frame: shorter than its header"));
    }
    Ok(Some(length))
}

/// Reads one whole frame.
pub fn decode(frame: &[u8]) -> Result<Frame<'_>, Malformed> {
    let Some(&[_, _, _, _, offset, kind, high, low]) = frame.first_chunk::<HEADER_SIZE>() else {
        return Err(Malformed::Field("frame: shorter than its header"));
    };
    let offset = usize::from(offset) * 4;
    if offset < HEADER_SIZE {
        return Err(Malformed::Field("frame: data offset"));
    }
    let body = frame.get(offset..).ok_or(Malformed::Field("frame: data offset"))?;
    let channel = u16::from_be_bytes([high, low]);
    match kind {
        TYPE_AMQP if body.is_empty() => Ok(Frame { channel, body: Body::Empty }),
        TYPE_AMQP => {
            let (performative, payload) = Performative::read(body)?;
            Ok(Frame { channel, body: Body::Amqp(performative, payload) })
        }
        TYPE_SASL => Ok(Frame { channel: 0, body: Body::Sasl(Sasl::read(body)?) }),
        _ => Err(Malformed::Field("frame: unknown type")),
    }
}

/// Appends a frame with a performative and its payload.
pub fn encode(out: &mut Vec<u8>, channel: u16, performative: &Performative, payload: &[u8]) {
    let start = begin(out, channel);
    performative.write(&mut Writer::new(out));
    out.extend_from_slice(payload);
    end(out, start);
}

/// Appends a SASL frame.
pub fn encode_sasl(out: &mut Vec<u8>, sasl: &Sasl) {
    let start = begin(out, 0);
    out[start + 5] = TYPE_SASL;
    sasl.write(&mut Writer::new(out));
    end(out, start);
}

/// Appends an empty frame, which shows that this side is alive.
pub fn encode_empty(out: &mut Vec<u8>) {
    let start = begin(out, 0);
    end(out, start);
}

/// Appends the header of a frame, and returns its position for [`end`], which fills in the length.
pub(crate) fn begin(out: &mut Vec<u8>, channel: u16) -> usize {
    let start = out.len();
    let [high, low] = channel.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 0, 2, TYPE_AMQP, high, low]);
    start
}

pub(crate) fn end(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start).expect("a frame is shorter than 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

impl Performative {
    /// Reads the performative at the front of `body`, and returns it with the bytes behind it.
    fn read(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (code, mut fields, rest) = Composite::read(body)?;
        let fields = &mut fields;
        let performative = match code {
            Transfer::CODE => Self::Transfer(Transfer::read(fields)?),
            Disposition::CODE => Self::Disposition(Disposition::read(fields)?),
            Flow::CODE => Self::Flow(Flow::read(fields)?),
            Open::CODE => Self::Open(Box::new(Open::read(fields)?)),
            Begin::CODE => Self::Begin(Box::new(Begin::read(fields)?)),
            Attach::CODE => Self::Attach(Box::new(Attach::read(fields)?)),
            Detach::CODE => Self::Detach(Detach::read(fields)?),
            End::CODE => Self::End(End::read(fields)?),
            Close::CODE => Self::Close(Close::read(fields)?),
            _ => return Err(Malformed::Field("frame: unknown performative")),
        };
        Ok((performative, rest))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Open(open) => open.write(writer),
            Self::Begin(begin) => begin.write(writer),
            Self::Attach(attach) => attach.write(writer),
            Self::Flow(flow) => flow.write(writer),
            Self::Transfer(transfer) => transfer.write(writer),
            Self::Disposition(disposition) => disposition.write(writer),
            Self::Detach(detach) => detach.write(writer),
            Self::End(end) => end.write(writer),
            Self::Close(close) => close.write(writer),
        }
    }
}

/// Returns the error for a field that must not be null.
const fn missing(field: &'static str) -> Malformed {
    Malformed::Field(field)
}
