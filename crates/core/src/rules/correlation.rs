//! Filters that compare properties with given values.

use super::sql::equal;
use super::{Properties, SystemProperty};
use crate::value::{Value, ValueRef};

/// Matches the messages whose properties have all the values given here. The comparison is
/// case-sensitive. A filter without values matches every message.
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
    /// The address for replies.
    pub reply_to: Option<Box<str>>,
    /// The session id for replies.
    pub reply_to_session_id: Option<Box<str>>,
    /// The session id.
    pub session_id: Option<Box<str>>,
    /// The destination address.
    pub to: Option<Box<str>>,
    /// User properties. Values of different types are different: `"2"` is not `2`.
    pub properties: Vec<(Box<str>, Value)>,
}

impl CorrelationFilter {
    /// Returns whether the filter matches the message.
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

    /// The system properties that the filter compares, with their values.
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
