//! Session ids that were read lately, so that entries of one session share its id.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// How many ids are remembered at most: more take longer to find than to read.
const SLOTS: usize = 1 << 14;

/// In each slot the last id whose hash says so.
#[derive(Default)]
pub(super) struct SessionIds {
    slots: Vec<Option<Arc<str>>>,
    hasher: FixedState,
}

impl SessionIds {
    /// This id, shared with whoever asked for it lately.
    pub fn share(&mut self, id: &str) -> Arc<str> {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        let slot = &mut self.slots[self.hasher.hash_one(id) as usize % SLOTS];
        match slot {
            Some(known) if **known == *id => Arc::clone(known),
            _ => Arc::clone(slot.insert(id.into())),
        }
    }
}
