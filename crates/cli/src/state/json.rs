//! What a program reads: one object a line.

use data_encoding::BASE64;
use serde::Serialize;

/// What is told of a key. The order of the fields is the order of the line. What is not UTF-8 is in
/// Base64, in the field with that name.
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

    /// What happened to it.
    pub fn op(mut self, op: &'static str) -> Self {
        self.op = Some(op);
        self
    }

    /// Whether what was asked for was done.
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

    /// With a line feed.
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
