//! Responses of `$cbs` and `$management`.

use super::builder::Builder;
use super::properties::Field;
use crate::wire::{ValueRef, Writer};

/// Answer to a [`Request`](super::Request).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response<'a> {
    /// HTTP status code.
    pub status: u16,
    /// Description of the status.
    pub description: &'a str,
    /// Error condition, if the request failed. `$cbs` has none.
    pub condition: Option<&'a str>,
    /// Message id of the request, with its type.
    pub correlation_id: ValueRef<'a>,
}

impl Response<'_> {
    /// Appends the message to `out`. `body` writes the keys and values of the map in its body.
    ///
    /// The two nodes spell the same names differently; every response has both spellings.
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
