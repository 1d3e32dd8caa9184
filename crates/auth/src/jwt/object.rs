//! JSON objects as they are in tokens.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A JSON object whose members are not parsed. A name that occurs twice is an error, because issuer and broker
/// might read different values (RFC 7519, 4).
#[derive(Debug, Default)]
pub(super) struct Object(BTreeMap<String, Box<RawValue>>);

impl Object {
    /// Returns the JSON of a member.
    pub(super) fn json(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.get())
    }

    /// Parses a member.
    ///
    /// # Errors
    /// The member has another type.
    pub(super) fn get<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, serde_json::Error> {
        self.json(name).map(serde_json::from_str).transpose()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name occurs twice"));
                    }
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_parsed_on_demand() {
        let object: Object =
            serde_json::from_str(r#"{"a":1.5,"b":"\u0062","c":{"d":[]}}"#).unwrap();
        assert_eq!(object.get::<f64>("a").unwrap(), Some(1.5));
        assert_eq!(object.get::<String>("b").unwrap().as_deref(), Some("b"));
        assert_eq!(object.json("c"), Some(r#"{"d":[]}"#));
        assert!(object.get::<String>("a").is_err() && object.get::<String>("x").unwrap().is_none());
    }

    #[test]
    fn other_json_is_an_error() {
        for json in
            ["", "[]", "null", "1", r#"{"a":1"#, r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, "{}x"]
        {
            assert!(serde_json::from_str::<Object>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn nesting_costs_no_stack() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
        let object: Object = serde_json::from_str(&deep).unwrap();
        assert!(object.get::<serde_json::Value>("a").is_err(), "the parser has a limit");
    }
}
