//! The properties of a message.

use std::borrow::Cow;

use super::text::id_text;
use crate::wire::{List, ValueRef, code};

/// Number of properties.
pub(super) const COUNT: usize = 13;

/// A property, in the order of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Field {
    MessageId,
    UserId,
    To,
    /// Called label in Service Bus.
    Subject,
    ReplyTo,
    CorrelationId,
    ContentType,
    ContentEncoding,
    AbsoluteExpiryTime,
    CreationTime,
    /// Called session id in Service Bus.
    GroupId,
    GroupSequence,
    ReplyToGroupId,
}

impl Field {
    /// Returns the property with this Service Bus name: `Label`, `SessionId`, `CorrelationId`, … in
    /// any case.
    pub fn of_system(name: &str) -> Option<Self> {
        const NAMES: [(&str, Field); 10] = [
            ("MessageId", Field::MessageId),
            ("To", Field::To),
            ("Label", Field::Subject),
            ("Subject", Field::Subject),
            ("ReplyTo", Field::ReplyTo),
            ("CorrelationId", Field::CorrelationId),
            ("ContentType", Field::ContentType),
            ("SessionId", Field::GroupId),
            ("GroupId", Field::GroupId),
            ("ReplyToSessionId", Field::ReplyToGroupId),
        ];
        NAMES.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
    }
}

/// Properties of a message; absent ones are null.
#[derive(Clone, Copy, Debug)]
pub struct Properties<'a> {
    /// Encoded values.
    fields: [&'a [u8]; COUNT],
}

impl<'a> Properties<'a> {
    pub(super) fn of(list: List<'a>) -> Self {
        let mut fields = [NULL; COUNT];
        for (field, value) in fields.iter_mut().zip(list.raw()) {
            *field = value;
        }
        Self { fields }
    }

    /// Returns a property as it was sent.
    pub fn value(&self, field: Field) -> ValueRef<'a> {
        ValueRef::known(self.fields[field as usize])
    }

    /// Returns a property that is text.
    pub fn text(&self, field: Field) -> Option<&'a str> {
        self.value(field).text()
    }

    /// Returns the message id as text, whatever its type.
    pub fn message_id(&self) -> Option<Cow<'a, str>> {
        id_text(self.value(Field::MessageId))
    }

    /// Returns the correlation id as text, whatever its type.
    pub fn correlation_id(&self) -> Option<Cow<'a, str>> {
        id_text(self.value(Field::CorrelationId))
    }

    /// Returns the group id, which is the session id of Service Bus.
    pub fn group_id(&self) -> Option<&'a str> {
        self.text(Field::GroupId)
    }

    /// Returns the session id that a reply should carry.
    pub fn reply_to_group_id(&self) -> Option<&'a str> {
        self.text(Field::ReplyToGroupId)
    }

    /// Returns the subject, which is the label of Service Bus.
    pub fn subject(&self) -> Option<&'a str> {
        self.text(Field::Subject)
    }

    /// Returns the address that the message is for.
    pub fn to(&self) -> Option<&'a str> {
        self.text(Field::To)
    }

    /// Returns the address that a reply should go to.
    pub fn reply_to(&self) -> Option<&'a str> {
        self.text(Field::ReplyTo)
    }

    /// Returns the MIME type of the body.
    pub fn content_type(&self) -> Option<&'a str> {
        self.text(Field::ContentType)
    }

    /// Returns all properties in their encoded form.
    pub(super) fn all(&self) -> [&'a [u8]; COUNT] {
        self.fields
    }
}

const NULL: &[u8] = &[code::NULL];
