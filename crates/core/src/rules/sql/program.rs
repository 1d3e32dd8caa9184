//! An expression, ready to be evaluated.

use smallvec::SmallVec;

use super::TEXT_MAX;
use super::like::Pattern;
use super::operators::{self, Arithmetic, Comparison};
use crate::rules::{Properties, SystemProperty};
use crate::value::{Value, ValueRef};

/// What is computed at the moment.
type Stack<'a> = SmallVec<[ValueRef<'a>; 8]>;

/// Instructions for a machine with a stack: operands come before their operator.
///
/// Evaluating runs through it once, so it costs at most the number of instructions, and for each
/// the size of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::rules) struct Program(pub(super) Vec<Instruction>);

/// An instruction: takes its operands from the stack, the last one first, and puts its result there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Instruction {
    /// A value of the text, or of a parameter.
    Constant(Value),
    /// `name`, `user.name`.
    User(Box<str>),
    /// `sys.name`.
    System(SystemProperty),
    /// `property(…)`: the operand is the name, with `sys.` or `user.` or without.
    Property,
    /// `newid()`.
    NewId,
    /// `EXISTS(name)`, `EXISTS(user.name)`.
    UserExists(Box<str>),
    /// `EXISTS(sys.name)`.
    SystemExists(SystemProperty),
    Not,
    Negate,
    IsNull,
    Arithmetic(Arithmetic),
    Compare(Comparison),
    /// LIKE with a pattern that the text has.
    LikePattern(Box<Pattern>),
    /// LIKE: the text, the pattern, and the escape character if there is one.
    Like {
        escape: bool,
    },
    /// IN: the value, and so many others.
    In(usize),
    /// AND if `false` decides, OR if `true` does.
    Junction {
        decides: bool,
    },
    /// The right side of a junction is passed over, up to `to`, if the left one decides.
    PassOver {
        decides: bool,
        to: usize,
    },
}

impl Program {
    /// Whether the condition holds: not if it is unknown.
    pub(in crate::rules) fn holds(&self, properties: &impl Properties) -> bool {
        self.evaluate(properties) == ValueRef::Bool(true)
    }

    /// The value of the expression.
    pub(in crate::rules) fn evaluate<'a>(&'a self, message: &'a impl Properties) -> ValueRef<'a> {
        let mut stack = Stack::new();
        let mut next = 0;
        while let Some(instruction) = self.0.get(next) {
            next += 1;
            if !message.spend(1) {
                return ValueRef::Null;
            }
            match instruction {
                Instruction::PassOver { decides, to } => {
                    if stack.last() == Some(&ValueRef::Bool(*decides)) {
                        next = *to;
                    }
                }
                _ => {
                    let result = instruction.execute(&mut stack, message);
                    stack.push(result);
                }
            }
        }
        pop(&mut stack)
    }
}

impl Instruction {
    fn execute<'a>(&'a self, stack: &mut Stack<'a>, message: &'a impl Properties) -> ValueRef<'a> {
        match self {
            Self::Constant(value) => value.borrow(),
            Self::User(name) => message.user(name).unwrap_or(ValueRef::Null),
            Self::System(property) => message.system(*property).unwrap_or(ValueRef::Null),
            Self::Property => property(message, &pop(stack)),
            Self::NewId => ValueRef::Uuid(message.new_id()),
            Self::UserExists(name) => ValueRef::Bool(message.user(name).is_some()),
            Self::SystemExists(property) => ValueRef::Bool(message.system(*property).is_some()),
            Self::Not => operators::not(&pop(stack)),
            Self::Negate => operators::negated(&pop(stack)),
            Self::IsNull => ValueRef::Bool(pop(stack) == ValueRef::Null),
            Self::Arithmetic(operator) => {
                let (left, right) = pop_two(stack);
                message.spend((len(&left) + len(&right)) / 16);
                operator.of(&left, &right)
            }
            Self::Compare(comparison) => {
                let (left, right) = pop_two(stack);
                message.spend(len(&left).min(len(&right)) / 64);
                comparison.of(&left, &right)
            }
            Self::LikePattern(pattern) => like_pattern(&pop(stack), pattern, message),
            Self::Like { escape } => {
                let escape = escape.then(|| pop(stack));
                let (text, pattern) = pop_two(stack);
                like(&text, &pattern, escape.as_ref(), message)
            }
            Self::In(count) => {
                let items = stack.len() - count;
                message.spend(count + count * len(&stack[items - 1]) / 64);
                let result = operators::is_in(&stack[items - 1], &stack[items..]);
                stack.truncate(items - 1);
                result
            }
            Self::Junction { decides } => {
                let (left, right) = pop_two(stack);
                operators::junction(*decides, &left, &right)
            }
            Self::PassOver { .. } => unreachable!("the loop of the program does it"),
        }
    }
}

fn pop<'a>(stack: &mut Stack<'a>) -> ValueRef<'a> {
    stack.pop().expect("the parser puts operands before their operator")
}

fn pop_two<'a>(stack: &mut Stack<'a>) -> (ValueRef<'a>, ValueRef<'a>) {
    let right = pop(stack);
    (pop(stack), right)
}

/// The property with a name that was computed. One that cannot exist is unknown.
fn property<'a>(message: &'a impl Properties, name: &ValueRef<'_>) -> ValueRef<'a> {
    let ValueRef::String(name) = name else { return ValueRef::Null };
    let found = match name.split_once('.') {
        Some(("sys", name)) => SystemProperty::from_name(name).and_then(|it| message.system(it)),
        Some(("user", name)) => message.user(name),
        _ => message.user(name),
    };
    found.unwrap_or(ValueRef::Null)
}

/// Bytes of a text or of binary data.
fn len(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::String(text) => text.len(),
        ValueRef::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}

fn like_pattern<'a>(
    text: &ValueRef<'_>,
    pattern: &Pattern,
    message: &impl Properties,
) -> ValueRef<'a> {
    match text {
        ValueRef::String(text) if message.spend(pattern.cost(text.len())) => {
            ValueRef::Bool(pattern.matches(text))
        }
        _ => ValueRef::Null,
    }
}

/// LIKE with a pattern that was computed, so that it may come from a sender. It may be as long as
/// one that stands in a text.
fn like<'a>(
    text: &ValueRef<'_>,
    pattern: &ValueRef<'_>,
    escape: Option<&ValueRef<'_>>,
    message: &impl Properties,
) -> ValueRef<'a> {
    let ValueRef::String(pattern) = pattern else { return ValueRef::Null };
    let escape = match escape {
        None => None,
        Some(ValueRef::String(escape)) => match only_character(escape) {
            None => return ValueRef::Null,
            escape => escape,
        },
        Some(_) => return ValueRef::Null,
    };
    if pattern.chars().nth(TEXT_MAX).is_some()
        || !message.spend(Pattern::cost_of_new(pattern.len()))
    {
        return ValueRef::Null;
    }
    let pattern = Pattern::new(pattern, escape);
    pattern.map_or(ValueRef::Null, |pattern| like_pattern(text, &pattern, message))
}

/// The character of a text that has just one.
pub(super) fn only_character(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.as_str().is_empty())
}
