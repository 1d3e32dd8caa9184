use crate::frame::Malformed;
use crate::wire::{Map, ValueRef, Writer, constructor_len, key_text};

/// A map from symbols to values in the order it was written, as properties, filters and the
/// annotations of messages are. Peers that write a key as a string are understood, too.
///
/// It is kept as it is encoded, so that what was read is written again byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// Keys and values in turn.
    encoded: Vec<u8>,
    /// Of both.
    count: u32,
}

impl Fields {
    /// An empty map.
    pub const fn new() -> Self {
        Self { encoded: Vec::new(), count: 0 }
    }

    /// The value of the first entry with this key. A key whose value is null is there.
    pub fn get(&self, key: &str) -> Option<ValueRef<'_>> {
        self.map().get(key)
    }

    /// Puts an entry at the end, or the value in the place of that of the first entry with this key; a
    /// descriptor that stands before that one stays.
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

    /// `insert` for building.
    #[must_use]
    pub fn with<'v>(mut self, key: &str, value: impl Into<ValueRef<'v>>) -> Self {
        self.insert(key, value);
        self
    }

    /// The entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ValueRef<'_>)> {
        self.map().iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.count as usize / 2
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded map, whose keys must be texts.
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
