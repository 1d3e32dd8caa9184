//! What all entities of a tenant hold together.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns whether the entities of a tenant may hold so many bytes together. A refusal is counted.
pub type AdmitsBytes = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// The bytes of all messages, sessions and states in the entities of a tenant, as the size of an entity counts
/// them, and their limit.
pub(super) struct Holding {
    bytes: AtomicUsize,
    admits: AdmitsBytes,
}

impl Holding {
    pub fn new(admits: AdmitsBytes) -> Self {
        Self { bytes: AtomicUsize::new(0), admits }
    }

    /// Counts a change of one entity, from `before` to `after` bytes.
    pub fn count(&self, before: usize, after: usize) {
        // Difference and addition both wrap around, so the sum is correct.
        self.bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is room for `more` bytes. A refusal is counted.
    pub fn has_room(&self, more: usize) -> bool {
        (self.admits)(self.bytes().saturating_add(more))
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
