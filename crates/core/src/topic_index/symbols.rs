//! Interned topic levels: each distinct literal level of the wildcard filters is stored once, and
//! identified by a `u32`.

use hashbrown::HashTable;

use super::hashing::{Hashing, SHARDS, shard};

/// Levels of up to this many bytes need no allocation of their own.
const INLINE_MAX: usize = 22;

/// The literal levels in use. A level that is not in it is matched by no literal level. Sharded, so
/// that growing moves 1/16 of the levels at a time.
pub(super) struct Symbols {
    hashing: Hashing,
    tables: [HashTable<Symbol>; SHARDS],
    /// Ids below `next` that are not in use.
    free: Vec<u32>,
    next: u32,
}

struct Symbol {
    text: Text,
    id: u32,
    /// Number of edges with this symbol.
    uses: u32,
}

enum Text {
    Inline { length: u8, bytes: [u8; INLINE_MAX] },
    Heap(Box<[u8]>),
}

impl Symbols {
    pub(super) fn new(hashing: Hashing) -> Self {
        Self {
            hashing,
            tables: std::array::from_fn(|_| HashTable::new()),
            free: Vec::new(),
            next: 0,
        }
    }

    /// Returns the symbol of `level`, if any filter uses it.
    pub(super) fn find(&self, level: &str) -> Option<u32> {
        let hash = self.hashing.text(level);
        self.tables[shard(hash)].find(hash, |symbol| symbol.is(level)).map(|symbol| symbol.id)
    }

    /// The levels in use, by symbol. Symbols that are not in use have none.
    pub(super) fn levels(&self) -> Vec<&str> {
        let mut levels = vec![""; self.next as usize];
        for symbol in self.tables.iter().flatten() {
            levels[symbol.id as usize] = symbol.text.as_str();
        }
        levels
    }

    /// Counts one more use of `level`, and returns its symbol.
    pub(super) fn acquire(&mut self, level: &str) -> u32 {
        let hashing = self.hashing;
        let hash = hashing.text(level);
        let table = &mut self.tables[shard(hash)];
        if let Some(symbol) = table.find_mut(hash, |symbol| symbol.is(level)) {
            symbol.uses += 1;
            return symbol.id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let symbol = Symbol { text: Text::from(level), id, uses: 1 };
        table.insert_unique(hash, symbol, |symbol| symbol.hash(hashing));
        id
    }

    /// Releases one use of `level`; the last release frees its symbol.
    pub(super) fn release(&mut self, level: &str) {
        let hashing = self.hashing;
        let hash = hashing.text(level);
        let table = &mut self.tables[shard(hash)];
        let Ok(mut entry) = table.find_entry(hash, |symbol| symbol.is(level)) else { return };
        entry.get_mut().uses -= 1;
        if entry.get().uses > 0 {
            return;
        }
        let (symbol, _) = entry.remove();
        self.free.push(symbol.id);
        if table.len() < table.capacity() / 8 {
            table.shrink_to(2 * table.len(), |symbol| symbol.hash(hashing));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.iter().map(HashTable::len).sum()
    }
}

impl Symbol {
    fn is(&self, level: &str) -> bool {
        self.text.as_bytes() == level.as_bytes()
    }

    fn hash(&self, hashing: Hashing) -> u64 {
        hashing.bytes(self.text.as_bytes())
    }
}

impl Text {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("it was made from a level")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_keeps_its_symbol_until_the_last_use_is_released() {
        let long = "longer than the twenty-two bytes that fit";
        let mut symbols = Symbols::new(Hashing::with_seed(0));
        let ids = ["", "a", long].map(|level| symbols.acquire(level));
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(symbols.acquire(long), 2);
        symbols.release(long);
        assert_eq!(symbols.find(long), Some(2));
        symbols.release(long);
        assert_eq!(symbols.find(long), None);
        assert_eq!(symbols.acquire("reuses the id"), 2);
        assert_eq!(symbols.len(), 3);
    }
}
