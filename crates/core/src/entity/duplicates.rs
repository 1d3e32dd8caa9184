//! Detection of messages that were sent before.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Effects;
use super::due::{Due, NEVER};
use super::footprint;
use crate::time::WallTime;

/// Maximum number of ids that are kept. Beyond it the oldest is forgotten before its time.
pub const SEEN_MAX: usize = 1 << 20;

/// Maximum number of bytes of the ids, each with [`SEEN_OVERHEAD`](super::SEEN_OVERHEAD): enough for [`SEEN_MAX`] ids
/// of 64 bytes.
pub const SEEN_BYTES_MAX: usize = SEEN_MAX << 8;

/// The ids of messages that were sent recently.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    until: HashMap<Arc<str>, WallTime>,
    due: Due<Arc<str>>,
    bytes: usize,
}

impl Duplicates {
    /// Returns whether a message with this id was sent recently.
    pub fn knows(&self, id: &str, now: WallTime) -> bool {
        self.until.get(id).is_some_and(|until| *until > now)
    }

    pub fn note(&mut self, id: &Arc<str>, until: WallTime, fx: &mut dyn Effects) {
        self.recover(id, until);
        fx.put_seen(id, until);
        while self.until.len() > SEEN_MAX || self.bytes > SEEN_BYTES_MAX {
            self.forget_due(NEVER, fx);
        }
    }

    pub fn recover(&mut self, id: &Arc<str>, until: WallTime) {
        match self.until.insert(Arc::clone(id), until) {
            Some(before) => _ = self.due.remove(before, Arc::clone(id)),
            None => self.bytes += footprint::seen(id),
        }
        self.due.insert(until, Arc::clone(id));
    }

    /// Time at which the next id is forgotten.
    pub fn next_due(&self) -> Option<WallTime> {
        self.due.next()
    }

    /// Forgets all ids.
    pub fn clear(&mut self, fx: &mut dyn Effects) {
        while self.forget_due(NEVER, fx) {}
    }

    /// Forgets one id whose time has come. Returns false if there is none.
    pub fn forget_due(&mut self, now: WallTime, fx: &mut dyn Effects) -> bool {
        let Some(id) = self.due.take(now) else { return false };
        self.until.remove(&id);
        self.bytes -= footprint::seen(&id);
        fx.remove_seen(&id);
        true
    }
}
