//! Requests to `$cbs` and `$management`.

use super::properties::{Field, Properties};
use super::sections::Sections;
use crate::wire::Malformed;
use crate::wire::ValueRef;

/// What a client asks a node that answers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    sections: Sections<'a>,
    properties: Properties<'a>,
    body: ValueRef<'a>,
}

impl<'a> Request<'a> {
    /// The request that a message is. A body of other than one value is null.
    ///
    /// # Errors
    /// It is not well-formed, its body included.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let sections = Sections::split(message)?;
        let body = sections.body_value()?.unwrap_or(ValueRef::Null);
        Ok(Self { sections, properties: sections.properties(), body })
    }

    /// What to do.
    pub fn operation(&self) -> Option<&'a str> {
        self.application_property("operation")?.text()
    }

    /// An application property: `name` and `type` of a token, `associated-link-name`, …
    pub fn application_property(&self, name: &str) -> Option<ValueRef<'a>> {
        self.sections.application_properties().get(name)
    }

    /// The message id, which is the correlation id of the response, with its type.
    pub fn message_id(&self) -> ValueRef<'a> {
        self.properties.value(Field::MessageId)
    }

    /// Where the response should go to.
    pub fn reply_to(&self) -> Option<&'a str> {
        self.properties.reply_to()
    }

    /// The body: the token, or the map of arguments.
    pub fn body(&self) -> ValueRef<'a> {
        self.body
    }

    /// An argument; null if it is absent.
    pub fn argument(&self, name: &str) -> ValueRef<'a> {
        self.body.map().and_then(|map| map.get(name)).unwrap_or(ValueRef::Null)
    }
}
