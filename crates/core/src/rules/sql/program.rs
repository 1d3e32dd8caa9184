//! Compiled expressions and their evaluation.

use smallvec::SmallVec;

use super::TEXT_MAX;
use super::like::Pattern;
use super::operators::{self, Arithmetic, Comparison};
use crate::rules::{Properties, SystemProperty};
use crate::value::{Value, ValueRef};

/// The operands of the instructions that follow.
type Stack<'a> = SmallVec<[ValueRef<'a>; 8]>;

/// Instructions for a stack machine: operands come before their operator.
///
/// Evaluation executes each instruction at most once, so it costs at most the number of instructions, plus for each the
/// size of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::rules) struct Program(pub(super) Vec<Instruction>);

/// An instruction. It takes its operands from the stack, the last one first, and pushes its result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Instruction {
    /// A value in the text, or of a parameter.
    Constant(Value),
    /// `name`, `user.name`.
    User(Box<str>),
    /// `sys.name`.
    System(SystemProperty),
    /// `property(…)`: the operand is the name, with or without `sys.` or `user.`.
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
    /// LIKE with a constant pattern.
    LikePattern(Box<Pattern>),
    /// LIKE with a computed pattern; the operands are the text, the pattern, and the escape character if there is one.
    Like {
        escape: bool,
    },
    /// IN: the operands are the value and this many list elements.
    In(usize),
    /// AND if `decides` is `false`, OR if it is `true`.
    Junction {
        decides: bool,
    },
    /// Jumps over the right side of a junction, to the instruction `to`, if the left side decides.
    PassOver {
        decides: bool,
        to: usize,
    },
}

impl Program {
    /// Returns whether the condition is true; false if the result is unknown.
    pub(in crate::rules) fn holds(&self, properties: &impl Properties) -> bool {
        self.evaluate(properties) == ValueRef::Bool(true)
    }

    /// Returns the value of the expression.
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

/// Returns the property with a computed name; unknown if there is no such property.
fn property<'a>(message: &'a impl Properties, name: &ValueRef<'_>) -> ValueRef<'a> {
    let ValueRef::String(name) = name else { return ValueRef::Null };
    let found = match name.split_once('.') {
        Some((scope, name)) if scope.eq_ignore_ascii_case("sys") => {
            SystemProperty::from_name(name).and_then(|it| message.system(it))
        }
        Some((scope, name)) if scope.eq_ignore_ascii_case("user") => message.user(name),
        _ => message.user(name),
    };
    found.unwrap_or(ValueRef::Null)
}

/// Length of a text or of binary data, in bytes.
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

/// Computes LIKE with a computed pattern, which may come from the sender of the message. Its length is limited to that
/// of a filter.
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

/// Returns the character of a text that has exactly one.
pub(super) fn only_character(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.as_str().is_empty())
}
