//! What was changed of a message since it came.

use crate::rules::Value;

/// Whose names a changed property has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Scope {
    /// The message's properties: `Label`, `CorrelationId`, `SessionId`, …
    System = 0,
    /// Application properties.
    User = 1,
    /// Message annotations.
    Annotation = 2,
}

/// Properties that replace those in a message's bytes, which themselves are never changed: by abandoning,
/// deferring or dead-lettering, or by the action of a rule. Whoever lets others change messages bounds
/// how much.
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

    /// The changes, in the order in which they were made first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Scope, &str, &Value)> {
        self.0.iter().map(|(scope, name, value)| (*scope, &**name, value))
    }
}
