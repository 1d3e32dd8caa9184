//! `-F`: the format of a printed message.

use std::io::Write;

use anyhow::bail;
use data_encoding::{HEXLOWER, HEXUPPER};
use mqtt_proto::Publish;

use super::json;
use crate::timestamp::Timestamp;

/// A parsed format.
#[derive(Debug, PartialEq, Eq)]
pub struct Format(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(char),
}

/// Help on the letters that may follow `%`.
pub const FIELDS_HELP: &str = "\
  %t topic           %p payload            %x payload in hex   %X in upper-case hex
  %q QoS             %r retain: 0 or 1     %m packet id        %l bytes of payload
  %I time, ISO 8601  %U seconds since 1970 %j JSON             %J JSON, payload being JSON
  %C content type    %R response topic     %D correlation data %E message expiry interval
  %F payload format  %A topic alias        %S subscription ids %P user properties
  %% is a %, and \\n \\r \\t \\e \\a \\v \\0 \\\\ are as usual.";

const FIELDS: &str = "tpxXqrmlIUjJCRDEFASP";

impl Format {
    /// Parses a format string.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' => match chars.next() {
                    Some('%') => plain.push('%'),
                    Some(field) if FIELDS.contains(field) => {
                        if !plain.is_empty() {
                            parts.push(Part::Text(std::mem::take(&mut plain)));
                        }
                        parts.push(Part::Field(field));
                    }
                    Some(other) => bail!("-F: there is no %{other}; a % itself is %%"),
                    None => bail!("-F: the format ends with %; a % itself is %%"),
                },
                '\\' => plain.push(match chars.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some('e') => '\x1b',
                    Some('a') => '\x07',
                    Some('v') => '\x0b',
                    Some('0') => '\0',
                    Some('\\') => '\\',
                    other => bail!("-F: there is no \\{}", other.unwrap_or(' ')),
                }),
                _ => plain.push(c),
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// Returns the format of mosquitto_sub: the payload, after the topic if `verbose`.
    pub fn plain(verbose: bool) -> Self {
        let payload = Part::Field('p');
        if verbose {
            Self(vec![Part::Field('t'), Part::Text(" ".into()), payload])
        } else {
            Self(vec![payload])
        }
    }

    /// Returns the format of one JSON object per message.
    pub fn json() -> Self {
        Self(vec![Part::Field('j')])
    }

    /// Writes `message`, which arrived at `time`, in this format.
    pub fn write(
        &self,
        message: &Publish<'_>,
        time: Timestamp,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.write_all(text.as_bytes())?,
                Part::Field('p') => out.write_all(message.payload)?,
                Part::Field('D') => {
                    out.write_all(message.properties.correlation_data().unwrap_or_default())?;
                }
                Part::Field(field) => write!(out, "{}", field_text(*field, message, time))?,
            }
        }
        Ok(())
    }
}

fn field_text(field: char, message: &Publish<'_>, time: Timestamp) -> String {
    let properties = message.properties;
    let number = |value: Option<u32>| value.map_or(String::new(), |value| value.to_string());
    match field {
        't' => message.topic.into(),
        'x' => HEXLOWER.encode(message.payload),
        'X' => HEXUPPER.encode(message.payload),
        'q' => (message.qos as u8).to_string(),
        'r' => u8::from(message.retain).to_string(),
        'm' => message.packet_id.map_or(0, |id| id.get()).to_string(),
        'l' => message.payload.len().to_string(),
        'I' => time.iso_8601(),
        'U' => time.unix(),
        'j' => json::object(message, time, false),
        'J' => json::object(message, time, true),
        'C' => properties.content_type().unwrap_or_default().into(),
        'R' => properties.response_topic().unwrap_or_default().into(),
        'E' => number(properties.message_expiry_interval()),
        'F' => number(properties.payload_format_indicator().map(u32::from)),
        'A' => number(properties.topic_alias().map(u32::from)),
        'S' => {
            let ids: Vec<_> =
                properties.subscription_identifiers().map(|id| id.to_string()).collect();
            ids.join(" ")
        }
        'P' => {
            let pairs: Vec<_> = properties
                .user_properties()
                .map(|(name, value)| format!("{name}:{value}"))
                .collect();
            pairs.join(" ")
        }
        other => unreachable!("parse() lets no %{other} pass"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_proto::{PacketId, PropertiesBuf, Property, QoS};

    #[track_caller]
    fn check(format: &Format, payload: &[u8], expected: &str) {
        let mut properties = PropertiesBuf::new();
        properties.push(Property::ContentType("text")).unwrap();
        properties.push(Property::UserProperty("a", "1")).unwrap();
        properties.push(Property::UserProperty("b", "2")).unwrap();
        properties.push(Property::SubscriptionIdentifier(9)).unwrap();
        let message = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: "a/b",
            packet_id: PacketId::new(7),
            properties: properties.as_properties(),
            payload,
        };
        let mut out = Vec::new();
        format.write(&message, Timestamp::new(1_000_000_000, 5), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn fields_and_escapes() {
        let format = |text| Format::parse(text).unwrap();
        check(&format("%t|%p|%q%r%m|%l %%\\t\\\\"), b"hi", "a/b|hi|117|2 %\t\\");
        check(&format("%x %X"), &[0xAB], "ab AB");
        check(&format("%C,%R,%E,%P,%S,%F"), b"", "text,,,a:1 b:2,9,");
        check(&format("%I %U"), b"", "2001-09-09T01:46:40+0000 1000000000.000000005");
        check(&Format::plain(true), b"x", "a/b x");
    }

    #[test]
    fn json() {
        let before =
            r#"{"tst":"2001-09-09T01:46:40+0000","topic":"a/b","qos":1,"retain":1,"mid":7"#;
        let after = r#""properties":{"content-type":"text","subscription-identifiers":[9],"user-properties":[{"a":"1"},{"b":"2"}]}}"#;
        let line = |payload| format!("{before},{payload},{after}");
        check(&Format::json(), b"{}", &line(r#""payloadlen":2,"payload":"{}""#));
        check(&Format::json(), &[0xFF], &line(r#""payloadlen":1,"payload_base64":"/w==""#));
        let embedded = Format::parse("%J").unwrap();
        check(&embedded, b"{}", &line(r#""payloadlen":2,"payload":{}"#));
        check(&embedded, b"{", &line(r#""payloadlen":1,"payload":"{""#));
    }

    #[test]
    fn mistakes() {
        for (text, expected) in [
            ("%z", "-F: there is no %z; a % itself is %%"),
            ("100%", "-F: the format ends with %; a % itself is %%"),
            ("\\q", "-F: there is no \\q"),
        ] {
            assert_eq!(Format::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
