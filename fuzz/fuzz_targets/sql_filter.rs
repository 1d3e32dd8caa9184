//! Any texts as an SQL filter and an action: the parsers do not panic, every error has a position in the text,
//! and a condition and its negation are never both true. The input has the filter and the action, separated by
//! a line `---`.

#![no_main]

use barid_core::rules::{Action, Change, Properties, SqlFilter, SystemProperty, same_name};
use barid_core::value::{Scope, Value, ValueRef};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let (filter, action) = input.split_once("\n---\n").unwrap_or((input, input));
    let mut message = Message(vec![
        (Scope::User, "a".into(), Value::Long(7)),
        (Scope::User, "b".into(), "100%".into()),
        (Scope::User, "c".into(), Value::Null),
        (Scope::User, "d".into(), Value::Timestamp(1_000)),
        (Scope::System, "Label".into(), "%_".into()),
    ]);
    match action.parse::<Action>() {
        Ok(action) => {
            let changes = action.changes(&message);
            assert_eq!(action.changes(&message), changes, "the same message, the same changes");
            message.0.splice(0..0, changes);
        }
        Err(error) => assert!((1..=action.chars().count() + 1).contains(&error.at), "{error}"),
    }
    match filter.parse::<SqlFilter>() {
        Ok(condition) => {
            if let Ok(opposite) = format!("NOT ({filter})").parse::<SqlFilter>() {
                assert!(!(condition.matches(&message) && opposite.matches(&message)));
            }
            let twice = format!("({filter}) AND ({filter})").parse::<SqlFilter>();
            if let Ok(twice) = twice {
                assert_eq!(twice.matches(&message), condition.matches(&message));
            }
        }
        Err(error) => assert!((1..=filter.chars().count() + 1).contains(&error.at), "{error}"),
    }
});

/// A message, by its properties. The first property with a name counts.
struct Message(Vec<Change>);

impl Message {
    fn find(&self, scope: Scope, name: &str) -> Option<ValueRef<'_>> {
        let found = self.0.iter().find(|(its, it, _)| *its == scope && same_name(it, name));
        found.map(|(_, _, value)| value.borrow())
    }
}

impl Properties for Message {
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        self.find(Scope::System, property.name())
    }

    fn user(&self, name: &str) -> Option<ValueRef<'_>> {
        self.find(Scope::User, name)
    }

    fn new_id(&self) -> [u8; 16] {
        [7; 16]
    }
}
