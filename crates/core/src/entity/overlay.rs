//! The properties of a message that were changed since it was received.

use super::Changes;
use crate::value::{Scope, Value};

/// Maximum number of properties of one message that receivers may change, over all its deliveries; a settlement beyond
/// it is refused as [`Refusal::TooManyChanges`](super::Refusal::TooManyChanges).
pub const CHANGED_MAX: usize = 100;
/// Maximum size of these properties, names and values together, in bytes. See [`CHANGED_MAX`].
pub const CHANGED_BYTES_MAX: usize = 64 * 1024;

/// Properties that replace those in a message's bytes, which never change themselves. Set by abandoning, deferring or
/// dead-lettering, or by the action of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay(Vec<(Scope, Box<str>, Value)>);

impl Overlay {
    /// Creates an empty overlay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of changed properties.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no property was changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the new value of a property. [`Value::Null`]: the property was removed.
    pub fn get(&self, scope: Scope, name: &str) -> Option<&Value> {
        self.0.iter().find(|(of, key, _)| *of == scope && **key == *name).map(|(_, _, value)| value)
    }

    /// Changes a property, in place of an earlier change.
    pub fn set(&mut self, scope: Scope, name: &str, value: Value) {
        match self.0.iter_mut().find(|(of, key, _)| *of == scope && **key == *name) {
            Some((_, _, old)) => *old = value,
            None => self.0.push((scope, name.into(), value)),
        }
    }

    /// Takes a change back: the property is as it was received.
    pub fn unset(&mut self, scope: Scope, name: &str) {
        self.0.retain(|(of, key, _)| *of != scope || **key != *name);
    }

    /// Returns whether the overlay stays within its limits with these changes added.
    pub fn has_room_for(&self, changes: &Changes) -> bool {
        let bytes = |name: &str, value: &Value| name.len() + value.size();
        let own: usize = self.iter().map(|(_, name, value)| bytes(name, value)).sum();
        let new: usize = changes.iter().map(|(name, value)| bytes(name, value)).sum();
        self.len() + changes.len() <= CHANGED_MAX && own + new <= CHANGED_BYTES_MAX
    }

    /// The changes, in the order in which the properties were first changed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Scope, &str, &Value)> {
        self.0.iter().map(|(scope, name, value)| (*scope, &**name, value))
    }
}
