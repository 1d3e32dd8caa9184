//! Server-sent events of the admin API.

use std::io::{BufRead as _, BufReader, Read};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;

use crate::output::print_on;
use crate::span;

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

/// When a command that follows events ends.
#[derive(clap::Args)]
pub struct Until {
    /// End after so many packets or events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = span::parse_some)]
    span: Option<Duration>,
}

impl Until {
    /// Prints a line for each event. `counts` returns whether an event of this name is counted.
    pub fn print(
        &self,
        stream: impl Read,
        counts: impl Fn(&str) -> bool,
        line: impl Fn(&str, &str) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let mut events = Events::of(stream);
        let until = self.span.map(|span| Instant::now() + span);
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 && until.is_none_or(|until| Instant::now() < until) {
            let Some(event) = events.next()? else {
                bail!("the broker has ended the stream: it stops, or the token has ended");
            };
            let Some((name, data)) = event else { continue };
            left -= u64::from(counts(&name));
            if !print_on(line(&name, &data)?)? {
                break;
            }
        }
        Ok(())
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
