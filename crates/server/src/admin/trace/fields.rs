//! The fields of a packet, in the order of the standard.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Names and values of fields. Null values are left out.
#[derive(Debug, Default)]
pub struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Appends a field, unless its value is null.
    pub fn put(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.push((name.into(), value));
        }
    }

    /// Appends a field whose value is true, or nothing.
    pub fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.put(name, true);
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
