//! Actions of rules: changes of a message's properties.

use std::fmt;
use std::str::FromStr;

use super::properties::{Kind, Properties, SystemProperty, same_name};
use super::sql::{ParseError, Parser, Program, Target};
use crate::value::{Scope, Value, ValueRef, WrittenUuid};

/// A change of a message: the new value of the property with this name. [`Value::Null`] removes the property.
///
/// The names of user properties are compared with [`same_name`].
pub type Change = (Scope, Box<str>, Value);

/// Statements like `SET quantity = quantity / 2; REMOVE priority`.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    text: Box<str>,
    statements: Box<[Statement]>,
}

#[derive(Clone, Debug, PartialEq)]
enum Statement {
    Set(Target, Program),
    Remove(Target),
}

impl Action {
    /// The text of the action.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the changes that the action makes in the message, each property at most once. A statement sees the
    /// results of the statements before it.
    ///
    /// A property that is set to an unknown value is removed. A system property accepts a text, a number or a time,
    /// according to its kind; a value that cannot be converted to its kind leaves it unchanged. Statements that set the
    /// body have no effect: rules never change the body.
    pub fn changes(&self, message: &impl Properties) -> Vec<Change> {
        let mut changed = Changed { message, changes: Vec::new() };
        for statement in &self.statements {
            changed.execute(statement);
        }
        changed.changes
    }
}

impl FromStr for Action {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parser = Parser::new(text, &[])?;
        let mut statements = Vec::new();
        loop {
            let statement = if parser.takes_word("SET")? {
                let target = parser.settable()?;
                parser.want_symbol("=", "=")?;
                Statement::Set(target, parser.value()?)
            } else if parser.takes_word("REMOVE")? {
                Statement::Remove(parser.settable()?)
            } else {
                return Err(parser.expected("SET or REMOVE"));
            };
            statements.push(statement);
            parser.takes_symbol(";")?;
            if parser.is_at_end() {
                return Ok(Self { text: text.into(), statements: statements.into() });
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A message with the changes made so far. A removed property appears as one with the value `Null`: an action cannot
/// distinguish the two, since EXISTS is a condition.
struct Changed<'a, P> {
    message: &'a P,
    changes: Vec<Change>,
}

impl<P: Properties> Changed<'_, P> {
    fn execute(&mut self, statement: &Statement) {
        if !self.spend(1) {
            return;
        }
        let (target, value) = match statement {
            Statement::Remove(Target::Body) | Statement::Set(Target::Body, _) => return,
            Statement::Remove(target) => (target, Some(Value::Null)),
            Statement::Set(target, program) => {
                let value = program.evaluate(self);
                let value = match target {
                    Target::User(_) => Some(value.into_owned()),
                    Target::System(property) => converted(value, *property),
                    Target::Body => None,
                };
                (target, value)
            }
        };
        if let Some(value) = value {
            self.set(target, value);
        }
    }

    fn find(&self, scope: Scope, name: &str) -> Option<&Value> {
        let mut changes = self.changes.iter();
        let found = changes.find(|(its, it, _)| *its == scope && same_name(it, name));
        found.map(|(_, _, value)| value)
    }

    fn set(&mut self, target: &Target, value: Value) {
        let (scope, name) = match target {
            Target::System(property) => (Scope::System, property.name()),
            Target::User(name) => (Scope::User, &**name),
            Target::Body => return,
        };
        self.changes.retain(|(its, it, _)| !(*its == scope && same_name(it, name)));
        self.changes.push((scope, name.into(), value));
    }
}

impl<P: Properties> Properties for Changed<'_, P> {
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        match self.find(Scope::System, property.name()) {
            Some(value) => Some(value.borrow()),
            None => self.message.system(property),
        }
    }

    fn user(&self, name: &str) -> Option<ValueRef<'_>> {
        match self.find(Scope::User, name) {
            Some(value) => Some(value.borrow()),
            None => self.message.user(name),
        }
    }

    fn new_id(&self) -> [u8; 16] {
        self.message.new_id()
    }

    fn spend(&self, steps: usize) -> bool {
        self.message.spend(steps + self.changes.len())
    }
}

/// Converts the value to the kind of the property; `None` if that is not possible.
fn converted(value: ValueRef<'_>, property: SystemProperty) -> Option<Value> {
    match (property.kind(), value) {
        (_, ValueRef::Null) => Some(Value::Null),
        (Kind::Text, value) => written(value),
        (Kind::Number, ValueRef::Long(number)) => Some(Value::Long(number)),
        (Kind::Time, ValueRef::Timestamp(at)) => Some(Value::Timestamp(at)),
        (Kind::Number | Kind::Time, _) => None,
    }
}

fn written(value: ValueRef<'_>) -> Option<Value> {
    let text = match value {
        ValueRef::String(text) => text.into_owned(),
        ValueRef::Bool(truth) => truth.to_string(),
        ValueRef::Long(number) => number.to_string(),
        ValueRef::Double(number) => number.to_string(),
        ValueRef::Uuid(id) => WrittenUuid(&id).to_string(),
        ValueRef::Null | ValueRef::Binary(_) | ValueRef::Timestamp(_) => return None,
    };
    Some(Value::String(text.into()))
}
