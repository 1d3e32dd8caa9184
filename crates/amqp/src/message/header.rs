//! The header of a message.

use crate::wire::{List, ValueRef};

/// Header of a message. A field that is absent or of the wrong type has its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Whether the message is durable.
    pub durable: bool,
    /// Priority; `None` stands for the default, 4.
    pub priority: Option<u8>,
    /// Time to live, in milliseconds.
    pub ttl: Option<u32>,
    /// Whether no other receiver has acquired the message before.
    pub first_acquirer: bool,
    /// Number of failed attempts to deliver the message.
    pub delivery_count: u32,
}

impl Header {
    pub(super) fn of(list: List<'_>) -> Self {
        let mut fields = list.into_iter();
        let mut next = || fields.next().unwrap_or(ValueRef::Null);
        let number = |value: ValueRef<'_>| value.integer()?.try_into().ok();
        Self {
            durable: next().boolean().unwrap_or(false),
            priority: next().integer().and_then(|priority| priority.try_into().ok()),
            ttl: number(next()),
            first_acquirer: next().boolean().unwrap_or(false),
            delivery_count: number(next()).unwrap_or(0),
        }
    }
}
