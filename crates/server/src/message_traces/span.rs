//! A span: one step of a message, with the time that it has taken.

use std::sync::Arc;

/// The direction in which a message passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a client.
    Received,
    /// To a client.
    Sent,
}

impl Direction {
    /// Returns the other direction, in which the message is acknowledged.
    pub fn opposite(self) -> Self {
        match self {
            Self::Received => Self::Sent,
            Self::Sent => Self::Received,
        }
    }
}

/// A step of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrives, until it is acknowledged.
    Publish,
    /// Its acknowledgement waits for the disk, or for room in a queue. A part of [`Self::Publish`].
    Commit,
    /// It is sent to a client, until that has acknowledged it.
    Deliver,
}

/// One step of a message, with its time.
#[derive(Clone, Debug)]
pub struct Span {
    pub trace: [u8; 16],
    /// The span of the sender, or that which this one is a part of.
    pub parent: [u8; 8],
    pub id: [u8; 8],
    pub step: Step,
    pub tenant: Arc<str>,
    pub client: Arc<str>,
    /// `mqtt` or `amqp`.
    pub system: &'static str,
    /// The topic or the address of the entity; empty: it is not known.
    pub destination: Box<str>,
    /// Length of the packet, or of the first frame, in bytes.
    pub bytes: usize,
    /// Nanoseconds since the Unix epoch.
    pub start: u64,
    /// Nanoseconds since the Unix epoch.
    pub end: u64,
    /// Further facts, by name.
    pub facts: Vec<(&'static str, Value)>,
    /// Why the step has failed; `None`: it has not.
    pub error: Option<String>,
}

/// The value of a fact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Text(&'static str),
    Number(i64),
}
