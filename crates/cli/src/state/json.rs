//! JSON output for programs: one object per line.

use data_encoding::BASE64;
use serde::Serialize;

/// Data about a key. The fields appear in this order. Bytes that are not UTF-8 are in Base64, in
/// the field with that suffix.
#[derive(Default, Serialize)]
pub struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
}

impl<'a> Line<'a> {
    pub fn of(key: &'a [u8]) -> Self {
        let (key, key_base64) = split(key);
        Self { key, key_base64, ..Self::default() }
    }

    /// Sets the operation that changed the key.
    pub fn op(mut self, op: &'static str) -> Self {
        self.op = Some(op);
        self
    }

    /// Sets whether the request was carried out.
    pub fn applied(mut self, applied: bool) -> Self {
        self.applied = Some(applied);
        self
    }

    pub fn value(mut self, value: &'a [u8]) -> Self {
        (self.value, self.value_base64) = split(value);
        self
    }

    pub fn version(mut self, version: Option<&'a str>) -> Self {
        self.version = version;
        self
    }

    /// Formats the object, with a line feed.
    pub fn line(&self) -> String {
        let object = serde_json::to_string(self).expect("strings and booleans are always JSON");
        object + "\n"
    }
}

fn split(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_other_bytes() {
        assert_eq!(
            Line::of(b"k\n").op("SET").value(b"").version(Some("1:0:a")).line(),
            "{\"key\":\"k\\n\",\"op\":\"SET\",\"value\":\"\",\"version\":\"1:0:a\"}\n"
        );
        assert_eq!(
            Line::of(b"\xFF").applied(false).value(b"\xFE\0").line(),
            "{\"key_base64\":\"/w==\",\"applied\":false,\"value_base64\":\"/gA=\"}\n"
        );
    }
}
