use crate::frame::Malformed;
use crate::wire::{Map, ValueRef, Writer, constructor_len, key_text};

/// An ordered map with symbols as keys, used for properties, filters and the annotations of messages.
/// Keys that a peer writes as strings are understood, too.
///
/// The map is kept as it was encoded, so that it is written again byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// Encoded keys and values in turn.
    encoded: Vec<u8>,
    /// Number of keys and values together.
    count: u32,
}

impl Fields {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self { encoded: Vec::new(), count: 0 }
    }

    /// Returns the value of the first entry with this key. A key whose value is null exists.
    pub fn get(&self, key: &str) -> Option<ValueRef<'_>> {
        self.map().get(key)
    }

    /// Replaces the value of the first entry with this key, or appends an entry. A descriptor before
    /// the replaced value stays.
    pub fn insert<'v>(&mut self, key: &str, value: impl Into<ValueRef<'v>>) {
        let mut end = 0;
        let place = self.map().pairs().find_map(|(own, old)| {
            end += own.len() + old.len();
            let described = constructor_len(old).map_or(0, |len| len - 1);
            (key_text(own) == Some(key.as_bytes())).then_some(end - old.len() + described..end)
        });
        if let Some(place) = place {
            let mut new = Vec::new();
            Writer::new(&mut new).value(value);
            self.encoded.splice(place, new);
        } else {
            let mut entry = Writer::new(&mut self.encoded);
            entry.value(ValueRef::Symbol(key));
            entry.value(value);
            self.count += 2;
        }
    }

    /// [`insert`](Self::insert) in builder style.
    #[must_use]
    pub fn with<'v>(mut self, key: &str, value: impl Into<ValueRef<'v>>) -> Self {
        self.insert(key, value);
        self
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ValueRef<'_>)> {
        self.map().iter()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count as usize / 2
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reads an encoded map. All of its keys must be texts.
    pub(crate) fn read(encoded: &[u8]) -> Result<Self, Malformed> {
        let map = ValueRef::checked(encoded)?.map().ok_or(Malformed::Field("map: another type"))?;
        if map.pairs().any(|(key, _)| key_text(key).is_none()) {
            return Err(Malformed::Field("map: a key is no text"));
        }
        let (count, encoded) = map.encoded();
        Ok(Self { encoded: encoded.into(), count })
    }

    fn map(&self) -> Map<'_> {
        Map::of(self.count, &self.encoded)
    }
}

impl<'a> From<&'a Fields> for ValueRef<'a> {
    fn from(fields: &'a Fields) -> Self {
        Self::Map(fields.map())
    }
}
