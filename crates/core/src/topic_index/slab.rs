//! Slots addressed by `u32`, freed ones reused first.

use std::ops::{Index, IndexMut};

/// The id that no slot has.
pub(super) const NIL: u32 = u32::MAX;

/// A vector with a free list. A freed slot holds `T::default()`.
pub(super) struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// Stores `value` and answers its id, which stays valid until it is taken.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = value;
            return id;
        }
        let id = u32::try_from(self.slots.len()).expect("memory ends before 2^32 slots do");
        assert!(id != NIL, "memory ends before 2^32 slots do");
        self.slots.push(value);
        id
    }

    /// Frees `id`; the slab gives its memory back when the last slot is freed.
    pub(super) fn take(&mut self, id: u32) -> T {
        let value = std::mem::take(&mut self[id]);
        if self.free.len() + 1 == self.slots.len() {
            *self = Self::default();
        } else {
            self.free.push(id);
        }
        value
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.slots[id as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.slots[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_reused_and_the_last_one_gives_the_memory_back() {
        let mut slab = Slab::default();
        let ids: Vec<u32> = (0..100).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.take(ids[7]), 7);
        assert_eq!(slab.insert(700), ids[7]);
        assert_eq!(slab[ids[7]], 700);
        for id in ids {
            slab.take(id);
        }
        assert_eq!((slab.len(), slab.slots.capacity(), slab.free.capacity()), (0, 0, 0));
    }
}
