//! The literal children of all nodes of the trie, in one hash table.

use std::hint::black_box;

use super::hashing::{Hashing, SHARDS, shard};
use super::slab::NIL;

const CAPACITY_MIN: usize = 4;

/// The targets of an edge: where one level leads from a node. Ids are [`NIL`] if absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child {
    /// The node for longer filters.
    pub(super) node: u32,
    /// The subscribers of the filter that ends with this level.
    pub(super) set: u32,
}

/// Sized so that four edges fill a cache line.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Edge {
    parent: u32,
    symbol: u32,
    child: Child,
}

/// Edges by parent and symbol. With linear probing a lookup nearly always costs one cache miss,
/// while a table with separate tags costs two; and matching consists mostly of lookups. Sharded, so
/// that growing moves 1/16 of the edges at a time.
pub(super) struct Edges {
    hashing: Hashing,
    tables: [Table; SHARDS],
}

/// A table that is at most three quarters full, and at least an eighth full unless it is small. An
/// edge is in the first free slot from its home slot on, with no vacant slot in between.
#[derive(Default)]
struct Table {
    /// Empty, or a power of two of slots.
    slots: Vec<Edge>,
    len: usize,
}

impl Edges {
    pub(super) fn new(hashing: Hashing) -> Self {
        Self { hashing, tables: Default::default() }
    }

    pub(super) fn find(&self, parent: u32, symbol: u32) -> Option<Child> {
        let hash = self.hashing.pair(parent, symbol);
        let table = &self.tables[shard(hash)];
        table.position(hash, parent, symbol).map(|at| table.slots[at].child)
    }

    /// All edges, in no particular order: parent, symbol and child.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32, Child)> {
        let edges = self.tables.iter().flat_map(|table| &table.slots);
        edges.filter(|edge| !edge.is_vacant()).map(|edge| (edge.parent, edge.symbol, edge.child))
    }

    /// Prefetches the memory that [`Self::find`] will read.
    pub(super) fn touch(&self, parent: u32, symbol: u32) {
        let hash = self.hashing.pair(parent, symbol);
        let table = &self.tables[shard(hash)];
        if let Some(edge) = table.slots.get(table.home(hash)) {
            black_box(edge.parent);
        }
    }

    /// Replaces the child of an edge, if the edge exists.
    pub(super) fn replace(&mut self, parent: u32, symbol: u32, child: Child) {
        let hash = self.hashing.pair(parent, symbol);
        let table = &mut self.tables[shard(hash)];
        if let Some(at) = table.position(hash, parent, symbol) {
            table.slots[at].child = child;
        }
    }

    /// Adds an edge without child; it must not exist yet.
    pub(super) fn insert(&mut self, parent: u32, symbol: u32) {
        let hash = self.hashing.pair(parent, symbol);
        let table = &mut self.tables[shard(hash)];
        if (table.len + 1) * 4 > table.slots.len() * 3 {
            table.resize((2 * table.slots.len()).max(CAPACITY_MIN), self.hashing);
        }
        table.place(hash, Edge { parent, symbol, child: Child::NONE });
        table.len += 1;
    }

    /// Removes an edge, if it exists.
    pub(super) fn remove(&mut self, parent: u32, symbol: u32) {
        let hash = self.hashing.pair(parent, symbol);
        let table = &mut self.tables[shard(hash)];
        let Some(at) = table.position(hash, parent, symbol) else { return };
        table.vacate(at, self.hashing);
        table.len -= 1;
        if table.len == 0 {
            *table = Table::default();
        } else if table.len * 8 < table.slots.len() && table.slots.len() > CAPACITY_MIN {
            table.resize(table.slots.len() / 4, self.hashing);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(|table| table.len).sum()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tables.iter().map(|table| table.slots.capacity()).sum()
    }
}

impl Child {
    pub(super) const NONE: Self = Self { node: NIL, set: NIL };

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl Edge {
    const VACANT: Self = Self { parent: NIL, symbol: NIL, child: Child::NONE };

    fn is_vacant(&self) -> bool {
        self.parent == NIL
    }
}

impl Table {
    fn position(&self, hash: u64, parent: u32, symbol: u32) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let edge = &self.slots[at];
            if edge.parent == parent && edge.symbol == symbol {
                return Some(at);
            }
            if edge.is_vacant() {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Puts an edge into the first vacant slot from its home slot on; there must be a vacant slot.
    fn place(&mut self, hash: u64, edge: Edge) {
        let mut at = self.home(hash);
        while !self.slots[at].is_vacant() {
            at = self.after(at);
        }
        self.slots[at] = edge;
    }

    /// Empties a slot, and moves up the edges behind it that would not be found any more.
    fn vacate(&mut self, mut hole: usize, hashing: Hashing) {
        let mut at = self.after(hole);
        while !self.slots[at].is_vacant() {
            let edge = self.slots[at];
            let home = self.home(hashing.pair(edge.parent, edge.symbol));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = edge;
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = Edge::VACANT;
    }

    fn resize(&mut self, capacity: usize, hashing: Hashing) {
        let slots = std::mem::replace(&mut self.slots, vec![Edge::VACANT; capacity]);
        for edge in slots.into_iter().filter(|edge| !edge.is_vacant()) {
            self.place(hashing.pair(edge.parent, edge.symbol), edge);
        }
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & self.slots.len().wrapping_sub(1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Number of slots from `from` to `to`, wrapping around at the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edges_are_found_until_removed(
            steps in proptest::collection::vec((0..40u32, 0..40u32, any::<bool>()), 1..2000)
        ) {
            let mut edges = Edges::new(Hashing::with_seed(3));
            let mut model = HashMap::new();
            for (set, (parent, symbol, add)) in (0..).zip(steps) {
                let known = edges.find(parent, symbol).map(|child| child.set);
                prop_assert_eq!(known, model.get(&(parent, symbol)).copied());
                if add {
                    if known.is_none() {
                        edges.insert(parent, symbol);
                    }
                    edges.replace(parent, symbol, Child { node: NIL, set });
                    model.insert((parent, symbol), set);
                } else {
                    edges.remove(parent, symbol);
                    model.remove(&(parent, symbol));
                }
                prop_assert_eq!(edges.len(), model.len());
            }
            for (&(parent, symbol), &set) in &model {
                prop_assert_eq!(edges.find(parent, symbol).map(|child| child.set), Some(set));
            }
            for &(parent, symbol) in model.keys() {
                edges.remove(parent, symbol);
            }
            prop_assert_eq!((edges.len(), edges.capacity()), (0, 0));
        }
    }
}
