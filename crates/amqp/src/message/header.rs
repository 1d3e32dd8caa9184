//! The header of a message.

use crate::wire::{List, ValueRef};

/// What a message says about its way. What is absent or of another type than it must be, is its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Whether it should survive.
    pub durable: bool,
    /// 4, if it does not say.
    pub priority: Option<u8>,
    /// Milliseconds to live.
    pub ttl: Option<u32>,
    /// Whether nobody had it before.
    pub first_acquirer: bool,
    /// Attempts to deliver it that failed.
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
