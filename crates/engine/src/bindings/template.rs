//! Texts with placeholders for parts of a message.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A text with placeholders, such as `devices/{session}/commands`. `{{` and `}}` stand for `{` and `}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Placeholder),
}

/// A placeholder: a part of a message that replaces `{…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{2}`: a level of the MQTT topic, from 1.
    Level(usize),
    /// `{client}`: the client identifier of the publisher.
    Client,
    /// `{topic}`: the MQTT topic.
    Topic,
    /// `{property:name}`: a user property, or an application property.
    Property(String),
    /// `{session}`: the session id.
    Session,
    /// `{subject}`: the subject (label).
    Subject,
}

/// The reason why a text is not a template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    /// A brace without its counterpart.
    #[error("`{0}` has no counterpart; to write the character itself, double it")]
    Unbalanced(char),
    /// A placeholder that does not exist.
    #[error("`{{{0}}}` means nothing here")]
    Unknown(String),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// `TemplateError` if a brace has no counterpart, or if a placeholder does not exist.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = if rest[at..].starts_with('{') { '{' } else { '}' };
            let behind = &rest[at + 1..];
            if let Some(behind) = behind.strip_prefix(brace) {
                literal.push(brace);
                rest = behind;
                continue;
            }
            let name = (brace == '{').then(|| behind.split_once('}')).flatten();
            let (name, behind) = name.ok_or(TemplateError::Unbalanced(brace))?;
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Place(Placeholder::parse(name)?));
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { text: text.into(), pieces })
    }

    /// The text of the template.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Place(placeholder) => Some(placeholder),
            Piece::Text(_) => None,
        })
    }

    /// Returns the text with a value in place of each placeholder. Returns `None` if the message has no value
    /// for one of them.
    pub fn render<'v>(
        &self,
        mut value: impl FnMut(&Placeholder) -> Option<Cow<'v, str>>,
    ) -> Option<String> {
        let mut text = String::with_capacity(self.text.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Place(placeholder) => text.push_str(&value(placeholder)?),
            }
        }
        Some(text)
    }
}

impl Placeholder {
    fn parse(name: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(name.into());
        match name {
            "client" => Ok(Self::Client),
            "topic" => Ok(Self::Topic),
            "session" => Ok(Self::Session),
            "subject" => Ok(Self::Subject),
            _ => match name.strip_prefix("property:") {
                Some("") => Err(unknown()),
                Some(property) => Ok(Self::Property(property.into())),
                None if name.starts_with('+') => Err(unknown()),
                None => match name.parse() {
                    Ok(level) if level > 0 => Ok(Self::Level(level)),
                    _ => Err(unknown()),
                },
            },
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "{{{level}}}"),
            Self::Client => f.write_str("{client}"),
            Self::Topic => f.write_str("{topic}"),
            Self::Property(name) => write!(f, "{{property:{name}}}"),
            Self::Session => f.write_str("{session}"),
            Self::Subject => f.write_str("{subject}"),
        }
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn render(template: &str) -> String {
        let template = Template::parse(template).unwrap();
        template.render(|placeholder| Some(format!("<{placeholder}>").into())).unwrap()
    }

    #[test]
    fn text_and_places_may_be_mixed() {
        assert_eq!(render("devices/{session}/commands"), "devices/<{session}>/commands");
        assert_eq!(render("{2}-{client}{property:a b}"), "<{2}>-<{client}><{property:a b}>");
        assert_eq!(render("{topic}{subject}"), "<{topic}><{subject}>");
        assert_eq!(render("{{2}} }}{{"), "{2} }{");
        assert_eq!(render("{2}{{"), "<{2}>{");
        assert_eq!(render(""), "");
    }

    #[test]
    fn what_a_message_lacks_makes_no_text() {
        let template = Template::parse("a/{property:x}").unwrap();
        assert_eq!(template.render(|_| None), None);
    }

    #[test]
    fn slips_are_told() {
        for (text, error) in [
            ("a{2", TemplateError::Unbalanced('{')),
            ("a}", TemplateError::Unbalanced('}')),
            ("{0}", TemplateError::Unknown("0".into())),
            ("{+1}", TemplateError::Unknown("+1".into())),
            ("{clients}", TemplateError::Unknown("clients".into())),
            ("{property:}", TemplateError::Unknown("property:".into())),
            ("{}", TemplateError::Unknown(String::new())),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
    }
}
