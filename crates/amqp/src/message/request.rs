//! Requests to `$cbs` and `$management`.

use super::properties::{Field, Properties};
use super::sections::Sections;
use crate::wire::Malformed;
use crate::wire::ValueRef;

/// Request of a client to a node that answers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    sections: Sections<'a>,
    properties: Properties<'a>,
    body: ValueRef<'a>,
}

impl<'a> Request<'a> {
    /// Reads a message as a request. A body that is not a single value is read as null.
    ///
    /// # Errors
    /// The message is not well-formed; this includes its body.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let sections = Sections::split(message)?;
        let body = sections.body_value()?.unwrap_or(ValueRef::Null);
        Ok(Self { sections, properties: sections.properties(), body })
    }

    /// Returns the operation that is requested.
    pub fn operation(&self) -> Option<&'a str> {
        self.application_property("operation")?.text()
    }

    /// Returns an application property: `name` and `type` of a token, `associated-link-name`, …
    pub fn application_property(&self, name: &str) -> Option<ValueRef<'a>> {
        self.sections.application_properties().get(name)
    }

    /// Returns the message id, with its type. It becomes the correlation id of the response.
    pub fn message_id(&self) -> ValueRef<'a> {
        self.properties.value(Field::MessageId)
    }

    /// Returns the address that the response should go to.
    pub fn reply_to(&self) -> Option<&'a str> {
        self.properties.reply_to()
    }

    /// Returns the body: the token, or the map of arguments.
    pub fn body(&self) -> ValueRef<'a> {
        self.body
    }

    /// Returns an argument; null if it is absent.
    pub fn argument(&self, name: &str) -> ValueRef<'a> {
        self.body.map().and_then(|map| map.get(name)).unwrap_or(ValueRef::Null)
    }
}
