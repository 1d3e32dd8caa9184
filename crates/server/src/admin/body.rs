//! Bodies of requests: properties as JSON.

use data_encoding::BASE64;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::admin::answer::Refusal;

/// Reads all properties. Those that are missing have their defaults. An empty body has none.
pub fn properties<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Returns bytes that a body has as text, in the member `name`, or in Base64, in `{name}_base64`.
pub fn bytes(name: &str, text: Option<&str>, base64: Option<&str>) -> Result<Vec<u8>, Refusal> {
    match (text, base64) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(base64)) => decoded(&format!("{name}_base64"), base64),
        (None, None) => Ok(Vec::new()),
        (Some(_), Some(_)) => {
            Err(Refusal::bad_request(format!("either `{name}` or `{name}_base64`")))
        }
    }
}

/// Decodes the Base64 of a member.
pub fn decoded(name: &str, base64: &str) -> Result<Vec<u8>, Refusal> {
    let wrong = |error| Refusal::bad_request(format!("{name}: {error}"));
    BASE64.decode(base64.as_bytes()).map_err(wrong)
}

/// Reads some properties, and takes the others from `before`.
pub fn changed<T: DeserializeOwned + Serialize>(before: &T, body: &[u8]) -> Result<T, Refusal> {
    let changes: Map<String, Value> = properties(body)?;
    let mut merged = serde_json::to_value(before).expect("properties have text for keys");
    merged.as_object_mut().expect("properties are an object").extend(changes);
    serde_json::from_value(merged).map_err(|error| Refusal::bad_request(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use barid_engine::entities::QueueProperties;

    #[test]
    fn what_is_not_named_stays() {
        let before = QueueProperties { max_delivery_count: 3, ..QueueProperties::default() };
        let after = changed(&before, br#"{ "LockDuration": "PT5S" }"#).unwrap();
        assert_eq!(after.max_delivery_count, 3);
        assert_eq!(after.lock_duration.get().as_secs(), 5);
        assert_eq!(changed(&before, b"").unwrap(), before);
        let unknown = changed(&before, br#"{ "LockDurration": "PT5S" }"#).unwrap_err();
        assert!(format!("{unknown:?}").contains("unknown field `LockDurration`"));
    }
}
