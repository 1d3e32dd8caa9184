//! What things take in memory beside their own bytes, so that limits count what they are for.
//!
//! The numbers are measured (`tests/entity_memory.rs`): a limit in bytes is reached before the process
//! has taken twice as much.

use std::sync::Arc;

use super::{Entry, Incoming, Overlay};

/// Bytes that a message takes beside its own, its ids and what was changed of it: its entry, its places in the
/// queue, among those that are locked or due, and on a link.
pub const MESSAGE_OVERHEAD: usize = 448;

/// Bytes that a message session takes beside its id.
pub const SESSION_OVERHEAD: usize = 448;

/// Bytes that the state of a session takes beside its own.
pub const STATE_OVERHEAD: usize = 192;

/// Bytes that the id of a message takes, beside its own, as long as it is remembered.
pub const SEEN_OVERHEAD: usize = 192;

/// Bytes that a changed property takes beside its name and its value.
const CHANGE_OVERHEAD: usize = 80;

/// What a message counts.
fn message(size: usize, ids: [Option<&Arc<str>>; 2], overlay: Option<&Arc<Overlay>>) -> usize {
    let ids: usize = ids.into_iter().flatten().map(|id| id.len()).sum();
    let changes = overlay.map_or(0, |overlay| overlay.size());
    size + ids + changes + MESSAGE_OVERHEAD
}

impl Entry {
    /// Bytes that count against the limit of its entity.
    pub(super) fn footprint(&self) -> usize {
        let ids = [self.session.as_ref(), self.message_id.as_ref()];
        message(self.body.size as usize, ids, self.overlay.as_ref())
    }
}

impl Incoming {
    /// Bytes that it would count.
    pub(super) fn footprint(&self) -> usize {
        let ids = [self.session.as_ref(), self.message_id.as_ref()];
        message(self.bytes.len(), ids, self.overlay.as_ref())
    }
}

impl Overlay {
    /// Bytes that it takes.
    fn size(&self) -> usize {
        self.iter().map(|(_, name, value)| name.len() + value.size() + CHANGE_OVERHEAD).sum()
    }
}

/// Bytes that a session counts, without its messages and its state.
pub(super) fn session(id: &str) -> usize {
    id.len() + SESSION_OVERHEAD
}

/// Bytes that the state of a session counts.
pub(super) fn state(bytes: &[u8]) -> usize {
    bytes.len() + STATE_OVERHEAD
}

/// Bytes that an id counts which is remembered.
pub(super) fn seen(id: &str) -> usize {
    id.len() + SEEN_OVERHEAD
}
