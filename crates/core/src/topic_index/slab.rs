//! Slots addressed by `u32`; freed ones are reused first.

use std::ops::{Index, IndexMut};

/// The id that no slot has.
pub(super) const NIL: u32 = u32::MAX;

/// Number of slots per chunk. A power of two.
const CHUNK: usize = 4096;

/// Slots with a free list. A freed slot contains `T::default()`. Organized in chunks, so that
/// growing moves at most one chunk and does not leave half of the memory unused.
pub(super) struct Slab<T> {
    /// All chunks are full except the last.
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// Stores `value` and returns its id, which stays valid until the value is taken.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = value;
            return id;
        }
        let id = u32::try_from(self.slots()).expect("memory ends before 2^32 slots do");
        assert!(id != NIL, "memory ends before 2^32 slots do");
        if self.slots().is_multiple_of(CHUNK) {
            // The first chunk grows on demand: most tenants are small.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let last = self.chunks.last_mut().expect("a chunk was added when there was none");
        last.push(value);
        id
    }

    /// Takes the value of `id` and frees its slot. When the last slot is freed, the slab frees its
    /// memory.
    pub(super) fn take(&mut self, id: u32) -> T {
        let value = std::mem::take(&mut self[id]);
        if self.free.len() + 1 == self.slots() {
            *self = Self::default();
        } else {
            self.free.push(id);
        }
        value
    }

    /// All slots with their ids, also free ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.chunks.iter().flatten())
    }

    /// Number of slots, including free ones.
    pub(super) fn slots(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_reused_and_the_last_one_gives_the_memory_back() {
        let mut slab = Slab::default();
        let ids: Vec<u32> = (0..3 * CHUNK).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.take(ids[7]), 7);
        assert_eq!(slab.insert(700), ids[7]);
        assert_eq!(slab[ids[7]], 700);
        assert_eq!(slab[ids[2 * CHUNK + 1]], 2 * CHUNK + 1);
        for id in ids {
            slab.take(id);
        }
        assert_eq!((slab.len(), slab.chunks.capacity(), slab.free.capacity()), (0, 0, 0));
    }
}
