//! Server-sent events of the admin API.

use std::io::{BufRead as _, BufReader, Read};

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;

/// Maximum length of a line of the stream, in bytes.
const LINE_MAX: u64 = 1024 * 1024;

/// The events of a stream.
pub struct Events<R>(BufReader<R>);

impl<R: Read> Events<R> {
    /// Reads a stream.
    pub fn of(stream: R) -> Self {
        Self(BufReader::new(stream))
    }

    /// Reads the next event, with its data. `Some(None)`: the broker has shown that it is alive. `None`: the stream has
    /// ended.
    pub fn next(&mut self) -> anyhow::Result<Option<Option<(String, String)>>> {
        let mut name = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            if (&mut self.0).take(LINE_MAX).read_line(&mut line).unwrap_or(0) == 0 {
                return Ok(None);
            }
            let line = line.trim_end();
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.into();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Ok(Some(Some((name, data.into()))));
            } else if line.starts_with(':') {
                return Ok(Some(None));
            }
        }
    }
}

/// Names and values, in the order of the broker.
#[derive(Default)]
pub struct Fields(pub Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// Puts the name of the event in front of its data.
pub fn as_json(name: &str, data: &str) -> anyhow::Result<String> {
    let rest = data.strip_prefix('{').context("the broker has sent a broken event")?;
    Ok(format!("{{\"event\":\"{name}\",{rest}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_signs_of_life_are_told_apart() {
        let stream = ": tracing\n\nevent: packet\ndata: {}\n\n:\n\n";
        let mut events = Events::of(stream.as_bytes());
        let mut read = Vec::new();
        while let Some(event) = events.next().expect("it can be read") {
            read.push(event);
        }
        assert_eq!(read, [None, Some(("packet".into(), "{}".into())), None]);
        assert_eq!(
            as_json("packet", r#"{"at":"x"}"#).expect("an object"),
            "{\"event\":\"packet\",\"at\":\"x\"}\n"
        );
    }
}
