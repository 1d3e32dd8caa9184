//! A message that waits for a receiver.

use super::due::NEVER;
use super::{Entry, SequenceNumber};
use crate::queue::{Numbered, Queued};
use crate::time::WallTime;

/// The data that a queue needs of a message. The message itself is with the others of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    number: SequenceNumber,
    /// Time at which the message expires; [`NEVER`] if it does not.
    expires_at: WallTime,
    size: u32,
}

impl Ready {
    pub fn expires_at(&self) -> WallTime {
        self.expires_at
    }
}

impl From<&Entry> for Ready {
    fn from(entry: &Entry) -> Self {
        Self {
            number: entry.number,
            expires_at: entry.expires_at.unwrap_or(NEVER),
            size: entry.body.size,
        }
    }
}

impl Queued for Ready {
    type Time = WallTime;

    fn size(&self) -> usize {
        self.size as usize
    }

    fn size_in_memory(&self) -> usize {
        0
    }

    fn is_expired(&self, now: WallTime) -> bool {
        self.expires_at <= now
    }

    fn is_refusable(&self) -> bool {
        true
    }
}

impl Numbered for Ready {
    fn number(&self) -> SequenceNumber {
        self.number
    }
}
