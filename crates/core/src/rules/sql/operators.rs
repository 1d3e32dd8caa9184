//! Operators on values. A result that does not exist is unknown, which is [`ValueRef::Null`].

use std::borrow::Cow;
use std::cmp::Ordering;

use super::JOINED_MAX;
use crate::value::ValueRef;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An arithmetic operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Comparison {
    /// Compares two values. The result is a boolean, or unknown.
    pub(super) fn of<'a>(self, left: &ValueRef<'_>, right: &ValueRef<'_>) -> ValueRef<'a> {
        let Some(ordering) = compare(left, right) else { return ValueRef::Null };
        match self {
            Self::Equal => ValueRef::Bool(ordering.is_eq()),
            Self::NotEqual => ValueRef::Bool(ordering.is_ne()),
            _ if !has_order(left) => ValueRef::Null,
            Self::Less => ValueRef::Bool(ordering.is_lt()),
            Self::LessOrEqual => ValueRef::Bool(ordering.is_le()),
            Self::Greater => ValueRef::Bool(ordering.is_gt()),
            Self::GreaterOrEqual => ValueRef::Bool(ordering.is_ge()),
        }
    }
}

/// Returns whether two values are equal; `None` (unknown) if one of them is unknown, or if they are
/// of different kinds.
pub(in crate::rules) fn equal(left: &ValueRef<'_>, right: &ValueRef<'_>) -> Option<bool> {
    compare(left, right).map(Ordering::is_eq)
}

/// Compares two values of one kind. Integers and floating-point numbers are one kind.
fn compare(left: &ValueRef<'_>, right: &ValueRef<'_>) -> Option<Ordering> {
    match (left, right) {
        (ValueRef::Long(left), ValueRef::Long(right)) => Some(left.cmp(right)),
        (ValueRef::String(left), ValueRef::String(right)) => Some(left.cmp(right)),
        (ValueRef::Bool(left), ValueRef::Bool(right)) => Some(left.cmp(right)),
        (ValueRef::Timestamp(left), ValueRef::Timestamp(right)) => Some(left.cmp(right)),
        (ValueRef::Binary(left), ValueRef::Binary(right)) => Some(left.cmp(right)),
        (ValueRef::Uuid(left), ValueRef::Uuid(right)) => Some(left.cmp(right)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}

/// Returns whether values of this kind are ordered.
fn has_order(value: &ValueRef<'_>) -> bool {
    !matches!(value, ValueRef::Bool(_) | ValueRef::Binary(_) | ValueRef::Uuid(_))
}

fn number(value: &ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Long(number) => Some(*number as f64),
        ValueRef::Double(number) => Some(*number),
        _ => None,
    }
}

impl Arithmetic {
    /// Applies the operator to two values. The result of two integers is an integer: `7 / 2` is 3.
    pub(super) fn of<'a>(self, left: &ValueRef<'a>, right: &ValueRef<'a>) -> ValueRef<'a> {
        match (left, right) {
            (ValueRef::Long(left), ValueRef::Long(right)) => {
                self.of_longs(*left, *right).map_or(ValueRef::Null, ValueRef::Long)
            }
            (ValueRef::String(left), ValueRef::String(right)) if self == Self::Add => {
                joined(left, right)
            }
            (ValueRef::Timestamp(_), _) | (_, ValueRef::Timestamp(_)) => self.of_times(left, right),
            _ => self.of_doubles(left, right).map_or(ValueRef::Null, ValueRef::Double),
        }
    }

    fn of_longs(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Self::Add => left.checked_add(right),
            Self::Subtract => left.checked_sub(right),
            Self::Multiply => left.checked_mul(right),
            Self::Divide => left.checked_div(right),
            Self::Remainder => left.checked_rem(right),
        }
    }

    fn of_doubles(self, left: &ValueRef<'_>, right: &ValueRef<'_>) -> Option<f64> {
        let (left, right) = (number(left)?, number(right)?);
        let result = match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Remainder => left % right,
        };
        result.is_finite().then_some(result)
    }

    /// Calculates with points in time: the difference of two, or one shifted by milliseconds.
    fn of_times<'a>(self, left: &ValueRef<'_>, right: &ValueRef<'_>) -> ValueRef<'a> {
        use ValueRef::{Long, Timestamp};
        let time = |time: Option<i64>| time.map_or(ValueRef::Null, Timestamp);
        match (self, left, right) {
            (Self::Subtract, Timestamp(left), Timestamp(right)) => {
                left.checked_sub(*right).map_or(ValueRef::Null, Long)
            }
            (Self::Subtract, Timestamp(at), Long(by)) => time(at.checked_sub(*by)),
            (Self::Add, Timestamp(at), Long(by)) | (Self::Add, Long(by), Timestamp(at)) => {
                time(at.checked_add(*by))
            }
            _ => ValueRef::Null,
        }
    }
}

fn joined<'a>(left: &str, right: &str) -> ValueRef<'a> {
    if left.len() + right.len() > JOINED_MAX {
        return ValueRef::Null;
    }
    ValueRef::String(Cow::Owned([left, right].concat()))
}

/// The negated number.
pub(super) fn negated<'a>(value: &ValueRef<'_>) -> ValueRef<'a> {
    match value {
        ValueRef::Long(number) => number.checked_neg().map_or(ValueRef::Null, ValueRef::Long),
        ValueRef::Double(number) => ValueRef::Double(-number),
        _ => ValueRef::Null,
    }
}

/// Computes NOT: an unknown value stays unknown.
pub(super) fn not<'a>(value: &ValueRef<'_>) -> ValueRef<'a> {
    match value {
        ValueRef::Bool(truth) => ValueRef::Bool(!truth),
        _ => ValueRef::Null,
    }
}

/// Computes AND or OR. `decides` is the truth value that alone decides the result: `false` for AND,
/// `true` for OR. If neither side decides, the result is the opposite if both sides are known, and
/// unknown otherwise.
pub(super) fn junction<'a>(
    decides: bool,
    left: &ValueRef<'_>,
    right: &ValueRef<'_>,
) -> ValueRef<'a> {
    match (left, right) {
        (ValueRef::Bool(truth), _) | (_, ValueRef::Bool(truth)) if *truth == decides => {
            ValueRef::Bool(decides)
        }
        (ValueRef::Bool(_), ValueRef::Bool(_)) => ValueRef::Bool(!decides),
        _ => ValueRef::Null,
    }
}

/// Computes IN: true if one of `items` is equal, unknown if one might be, false otherwise.
pub(super) fn is_in<'a>(left: &ValueRef<'_>, items: &[ValueRef<'_>]) -> ValueRef<'a> {
    let mut unknown = false;
    for item in items {
        match equal(left, item) {
            Some(true) => return ValueRef::Bool(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    if unknown { ValueRef::Null } else { ValueRef::Bool(false) }
}
