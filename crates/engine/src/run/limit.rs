//! How long a run may get.

/// How long a run may get. Its messages are handed on in one piece, to each subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimit {
    pub(super) messages: usize,
    /// Bytes of all packets.
    pub(super) bytes: usize,
}

/// Messages that a run brings to all subscribers together, if it has more than one: some 10 ms …
const OFFERS_MAX: usize = 32 * 1024;

/// … and their bytes.
const OFFERED_BYTES_MAX: usize = 16 * 1024 * 1024;

impl RunLimit {
    /// Whatever comes in one read.
    pub const NONE: Self = Self { messages: usize::MAX, bytes: usize::MAX };

    /// A single message.
    pub const ONE: Self = Self { messages: 1, bytes: usize::MAX };

    /// For messages that go to so many.
    pub fn for_subscribers(count: usize) -> Self {
        let count = count.max(1);
        Self { messages: OFFERS_MAX / count, bytes: OFFERED_BYTES_MAX / count }
    }
}

impl Default for RunLimit {
    fn default() -> Self {
        Self::NONE
    }
}
