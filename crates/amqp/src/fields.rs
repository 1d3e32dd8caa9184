use serde_amqp::Value;
use serde_amqp::primitives::Symbol;

/// A map from symbols to values in the order it was written, as properties, filters and the
/// annotations of messages are. Peers that write a key as a string are understood, too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(Symbol, Value)>);

impl Fields {
    /// An empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of the first entry with this key. A key whose value is null is there.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// Puts an entry at the end, or in the place of the one with this key.
    pub fn insert(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(name, _)| name.as_str() == key) {
            Some(entry) => entry.1 = value,
            None => self.0.push((Symbol::from(key), value)),
        }
    }

    /// `insert` for building.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.insert(key, value);
        self
    }

    /// The entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends an entry without looking for its key: what was read is kept as it came.
    pub(crate) fn push(&mut self, key: &str, value: Value) {
        self.0.push((Symbol::from(key), value));
    }
}

impl IntoIterator for Fields {
    type Item = (Symbol, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
