//! Interned topic levels: each distinct literal level of the wildcard filters once, as a `u32`.

use hashbrown::HashTable;

use super::hashing::Hashing;
use super::slab::Slab;

/// Levels up to this many bytes need no allocation of their own.
const INLINE_MAX: usize = 22;

/// The literal levels in use. A level that is not here cannot be matched by any literal.
pub(super) struct Symbols {
    hashing: Hashing,
    slots: Slab<Symbol>,
    by_text: HashTable<u32>,
}

#[derive(Default)]
struct Symbol {
    text: Text,
    /// How many edges carry it.
    uses: u32,
}

enum Text {
    Inline { length: u8, bytes: [u8; INLINE_MAX] },
    Heap(Box<[u8]>),
}

impl Symbols {
    pub(super) fn new(hashing: Hashing) -> Self {
        Self { hashing, slots: Slab::default(), by_text: HashTable::new() }
    }

    /// The symbol of `level`, if any filter uses it.
    pub(super) fn find(&self, level: &str) -> Option<u32> {
        let same = |&id: &u32| self.slots[id].text.as_bytes() == level.as_bytes();
        self.by_text.find(self.hashing.text(level), same).copied()
    }

    /// Counts one more use of `level`, and answers its symbol.
    pub(super) fn acquire(&mut self, level: &str) -> u32 {
        let id = self.find(level).unwrap_or_else(|| self.insert(level));
        self.slots[id].uses += 1;
        id
    }

    /// Takes back one use; the last one frees the symbol.
    pub(super) fn release(&mut self, id: u32) {
        self.slots[id].uses -= 1;
        if self.slots[id].uses > 0 {
            return;
        }
        let (hashing, slots) = (self.hashing, &mut self.slots);
        let hash = hashing.bytes(slots[id].text.as_bytes());
        if let Ok(entry) = self.by_text.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        slots.take(id);
        if self.by_text.len() < self.by_text.capacity() / 8 {
            let slots = &self.slots;
            self.by_text
                .shrink_to(2 * self.by_text.len(), |&id| hashing.bytes(slots[id].text.as_bytes()));
        }
    }

    fn insert(&mut self, level: &str) -> u32 {
        let id = self.slots.insert(Symbol { text: Text::from(level), uses: 0 });
        let (hashing, slots) = (self.hashing, &self.slots);
        let hash_of = |&id: &u32| hashing.bytes(slots[id].text.as_bytes());
        self.by_text.insert_unique(hashing.text(level), id, hash_of);
        id
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }
}

impl Text {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl From<&str> for Text {
    fn from(level: &str) -> Self {
        let mut bytes = [0; INLINE_MAX];
        match (bytes.get_mut(..level.len()), u8::try_from(level.len())) {
            (Some(inline), Ok(length)) => {
                inline.copy_from_slice(level.as_bytes());
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(level.as_bytes().into()),
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::Inline { length: 0, bytes: [0; INLINE_MAX] }
    }
}
