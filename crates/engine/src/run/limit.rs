//! Limits on the length of a run.

/// Maximum length of a run. A run is handed to all its subscribers in one piece, so its length bounds how
/// long this takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimit {
    pub(super) messages: usize,
    /// Maximum number of bytes of all packets together.
    pub(super) bytes: usize,
}

/// Maximum number of messages of a run, multiplied by the number of its subscribers: about 10 ms of work. The
/// message that would exceed it begins another run. Short runs are not measured (`SHORT_RUN` in
/// `mqtt/publish.rs`), and may exceed it.
const OFFERS_MAX: usize = 32 * 1024;

/// Maximum number of bytes of the packets of a run, multiplied by the number of its subscribers.
const OFFERED_BYTES_MAX: usize = 16 * 1024 * 1024;

impl RunLimit {
    /// No limit: a run may have all messages that come in one read.
    pub const NONE: Self = Self { messages: usize::MAX, bytes: usize::MAX };

    /// A single message.
    pub const ONE: Self = Self { messages: 1, bytes: usize::MAX };

    /// Returns the limit for messages that go to `count` subscribers.
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
