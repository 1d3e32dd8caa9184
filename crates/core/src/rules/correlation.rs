//! Filters that compare without a language.

use super::sql::equal;
use super::{Properties, SystemProperty};
use crate::value::{Value, ValueRef};

/// Those messages whose properties have the values that are given here, every one of them. Case
/// counts. A filter that asks for nothing is true of every message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CorrelationFilter {
    /// The content type.
    pub content_type: Option<Box<str>>,
    /// The correlation id.
    pub correlation_id: Option<Box<str>>,
    /// The subject.
    pub label: Option<Box<str>>,
    /// The message id.
    pub message_id: Option<Box<str>>,
    /// Where answers go.
    pub reply_to: Option<Box<str>>,
    /// The session of the answers.
    pub reply_to_session_id: Option<Box<str>>,
    /// The session.
    pub session_id: Option<Box<str>>,
    /// Where the message goes.
    pub to: Option<Box<str>>,
    /// User properties. A value of another kind is another value: `"2"` is not `2`.
    pub properties: Vec<(Box<str>, Value)>,
}

impl CorrelationFilter {
    /// Whether it is true of the message.
    pub fn matches(&self, message: &impl Properties) -> bool {
        let system = self.system().all(|(property, wanted)| match message.system(property) {
            Some(ValueRef::String(text)) => text == wanted,
            _ => false,
        });
        system
            && self.properties.iter().all(|(name, wanted)| {
                let found = message.user(name);
                found.is_some_and(|found| equal(&found, &wanted.borrow()) == Some(true))
            })
    }

    /// The system properties that it asks for.
    pub fn system(&self) -> impl Iterator<Item = (SystemProperty, &str)> {
        [
            (SystemProperty::ContentType, &self.content_type),
            (SystemProperty::CorrelationId, &self.correlation_id),
            (SystemProperty::Label, &self.label),
            (SystemProperty::MessageId, &self.message_id),
            (SystemProperty::ReplyTo, &self.reply_to),
            (SystemProperty::ReplyToSessionId, &self.reply_to_session_id),
            (SystemProperty::SessionId, &self.session_id),
            (SystemProperty::To, &self.to),
        ]
        .into_iter()
        .filter_map(|(property, wanted)| Some((property, wanted.as_deref()?)))
    }
}
