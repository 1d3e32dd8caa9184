//! Memory overhead of stored things beside their own bytes, so that limits reflect the memory used.
//!
//! The numbers are measured (`tests/entity_memory.rs`): a limit in bytes is reached before the process has used twice
//! as much.

use std::sync::Arc;

use super::{Entry, Incoming, Overlay};

/// Overhead of a message in bytes, beside its own bytes, its ids and its changed properties: its entry, and its places
/// in the queue, among locked or due messages, and on a link.
pub const MESSAGE_OVERHEAD: usize = 448;

/// Overhead of a message session in bytes, beside its id.
pub const SESSION_OVERHEAD: usize = 448;

/// Overhead of the state of a session in bytes, beside its own bytes.
pub const STATE_OVERHEAD: usize = 192;

/// Overhead of a remembered message id in bytes, beside its own bytes.
pub const SEEN_OVERHEAD: usize = 192;

/// Overhead of a changed property in bytes, beside its name and its value.
const CHANGE_OVERHEAD: usize = 80;

/// The footprint of a message.
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
    /// Bytes that would count against the limit of the entity.
    pub fn footprint(&self) -> usize {
        let ids = [self.session.as_ref(), self.message_id.as_ref()];
        message(self.bytes.len(), ids, self.overlay.as_ref())
    }
}

impl Overlay {
    /// Size of the overlay, in bytes.
    fn size(&self) -> usize {
        self.iter().map(|(_, name, value)| name.len() + value.size() + CHANGE_OVERHEAD).sum()
    }
}

/// The footprint of a session, without its messages and its state.
pub(super) fn session(id: &str) -> usize {
    id.len() + SESSION_OVERHEAD
}

/// The footprint of the state of a session.
pub(super) fn state(bytes: &[u8]) -> usize {
    bytes.len() + STATE_OVERHEAD
}

/// The footprint of a remembered message id.
pub(super) fn seen(id: &str) -> usize {
    id.len() + SEEN_OVERHEAD
}
