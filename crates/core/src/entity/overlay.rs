//! What was changed of a message since it came.

use super::Changes;
use crate::value::{Scope, Value};

/// Properties of one message that receivers may change, one after the other, and their bytes with their names.
pub const CHANGED_MAX: usize = 100;
/// See [`CHANGED_MAX`].
pub const CHANGED_BYTES_MAX: usize = 64 * 1024;

/// Properties that replace those in a message's bytes, which themselves are never changed: by abandoning,
/// deferring or dead-lettering, or by the action of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay(Vec<(Scope, Box<str>, Value)>);

impl Overlay {
    /// An overlay of none.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many properties.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none was changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a property was changed to. [`Value::Null`]: it was removed.
    pub fn get(&self, scope: Scope, name: &str) -> Option<&Value> {
        self.0.iter().find(|(of, key, _)| *of == scope && **key == *name).map(|(_, _, value)| value)
    }

    /// Changes a property, whatever it was changed to before.
    pub fn set(&mut self, scope: Scope, name: &str, value: Value) {
        match self.0.iter_mut().find(|(of, key, _)| *of == scope && **key == *name) {
            Some((_, _, old)) => *old = value,
            None => self.0.push((scope, name.into(), value)),
        }
    }

    /// Whether it stays within its bounds when this is changed as well.
    pub fn has_room_for(&self, changes: &Changes) -> bool {
        let bytes = |name: &str, value: &Value| name.len() + value.size();
        let own: usize = self.iter().map(|(_, name, value)| bytes(name, value)).sum();
        let new: usize = changes.iter().map(|(name, value)| bytes(name, value)).sum();
        self.len() + changes.len() <= CHANGED_MAX && own + new <= CHANGED_BYTES_MAX
    }

    /// The changes, in the order in which they were made first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Scope, &str, &Value)> {
        self.0.iter().map(|(scope, name, value)| (*scope, &**name, value))
    }
}
