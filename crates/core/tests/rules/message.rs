//! A message that has properties only.

use std::collections::HashMap;

use barid_core::rules::{Action, Properties, SqlFilter, SystemProperty, same_name};
use barid_core::value::{Scope, Value, ValueRef};

pub const NEW_ID: [u8; 16] = *b"\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8";

#[derive(Clone, Debug, Default)]
pub struct Message {
    pub system: HashMap<SystemProperty, Value>,
    pub user: Vec<(Box<str>, Value)>,
}

impl Message {
    /// Creates a message by applying an action to a message without properties. A property set to
    /// NULL exists without a value.
    pub fn made_by(action: &str) -> Self {
        let mut message = Self::default();
        for (scope, name, value) in action.parse::<Action>().unwrap().changes(&message) {
            if scope == Scope::System {
                message.system.insert(SystemProperty::from_name(&name).unwrap(), value);
            } else {
                message.user.push((name, value));
            }
        }
        message
    }

    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.user.push((name.into(), value));
        self
    }

    pub fn with_system(mut self, property: SystemProperty, value: Value) -> Self {
        self.system.insert(property, value);
        self
    }

    /// Returns whether the condition is true or false; `None` if it is unknown.
    pub fn answer(&self, condition: &str) -> Option<bool> {
        let holds = |text: &str| {
            let filter = text.parse::<SqlFilter>();
            filter.unwrap_or_else(|error| panic!("{text}: {error}")).matches(self)
        };
        match (holds(condition), holds(&format!("NOT ({condition})"))) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
            (true, true) => panic!("{condition}: true, and its opposite too"),
        }
    }
}

impl Properties for Message {
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        self.system.get(&property).map(Value::borrow)
    }

    fn user(&self, name: &str) -> Option<ValueRef<'_>> {
        let found = self.user.iter().find(|(its, _)| same_name(its, name));
        found.map(|(_, value)| value.borrow())
    }

    fn new_id(&self) -> [u8; 16] {
        NEW_ID
    }
}
