//! Responses of `$cbs` and `$management`.

use super::builder::Builder;
use super::properties::Field;
use crate::wire::{ValueRef, Writer};

/// An answer to a [`Request`](super::Request).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response<'a> {
    /// A status of HTTP.
    pub status: u16,
    /// It in words.
    pub description: &'a str,
    /// The error condition, if the request failed. Not for `$cbs`.
    pub condition: Option<&'a str>,
    /// The message id of the request, with its type.
    pub correlation_id: ValueRef<'a>,
}

impl Response<'_> {
    /// Appends the message to `out`. `body` writes the keys and values of the map that is its body.
    ///
    /// The two nodes have two spellings of the same names; all responses have both.
    pub fn encode(&self, body: impl FnOnce(&mut Writer<'_>), out: &mut Vec<u8>) {
        let status = ValueRef::Int(self.status.into());
        let description = ValueRef::String(self.description);
        let mut message = Builder::new();
        message
            .property(Field::CorrelationId, self.correlation_id)
            .application_property("statusCode", status)
            .application_property("status-code", status)
            .application_property("statusDescription", description)
            .application_property("status-description", description);
        if let Some(condition) = self.condition {
            message.application_property("errorCondition", ValueRef::Symbol(condition));
        }
        message.value(|value| value.map(body), out);
    }
}
