//! Random conditions, written with as few parentheses as the grammar needs, have the same result as a plain evaluation
//! of their syntax tree.

use barid_core::value::Value;
use proptest::prelude::*;

use crate::message::Message;

#[derive(Clone, Debug)]
enum Expression {
    Number(i64),
    Property(&'static str),
    Operation(Box<Expression>, char, Box<Expression>),
    Minus(Box<Expression>),
}

#[derive(Clone, Debug)]
enum Condition {
    Compare(Expression, &'static str, Expression),
    In(Expression, Vec<Expression>),
    IsNull(Expression),
    Truth(&'static str),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

fn number(name: &str) -> Option<i64> {
    match name {
        "two" => Some(2),
        "most" => Some(i64::MAX),
        _ => None,
    }
}

fn truth(name: &str) -> Option<bool> {
    match name {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn message() -> Message {
    Message::default()
        .with("two", 2.into())
        .with("most", i64::MAX.into())
        .with("yes", true.into())
        .with("no", false.into())
        .with("void", Value::Null)
}

impl Expression {
    fn value(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Property(name) => number(name),
            Self::Minus(inner) => inner.value()?.checked_neg(),
            Self::Operation(left, operator, right) => {
                let (left, right) = (left.value()?, right.value()?);
                match operator {
                    '+' => left.checked_add(right),
                    '-' => left.checked_sub(right),
                    '*' => left.checked_mul(right),
                    '/' => left.checked_div(right),
                    _ => left.checked_rem(right),
                }
            }
        }
    }

    /// The text of the expression as an operand of an operator of this precedence: 1 sums, 2 products, 3 signs.
    fn written(&self, strength: u8) -> String {
        let (own, text) = match self {
            Self::Number(number) if *number < 0 => (2, number.to_string()),
            Self::Number(number) => (3, number.to_string()),
            Self::Property(name) => (3, (*name).to_owned()),
            Self::Minus(inner) => (2, format!("- {}", inner.written(3))),
            Self::Operation(left, operator, right) => {
                let own = if matches!(operator, '+' | '-') { 1 } else { 2 };
                (own, format!("{} {operator} {}", left.written(own), right.written(own + 1)))
            }
        };
        if own < strength { format!("({text})") } else { text }
    }
}

impl Condition {
    fn answer(&self) -> Option<bool> {
        match self {
            Self::Compare(left, operator, right) => {
                let (left, right) = (left.value()?, right.value()?);
                Some(match *operator {
                    "=" => left == right,
                    "<>" => left != right,
                    "<" => left < right,
                    _ => left >= right,
                })
            }
            Self::In(left, items) => {
                let left = left.value()?;
                let items: Vec<_> = items.iter().map(Expression::value).collect();
                if items.contains(&Some(left)) {
                    return Some(true);
                }
                if items.contains(&None) { None } else { Some(false) }
            }
            Self::IsNull(inner) => Some(inner.value().is_none()),
            Self::Truth(name) => truth(name),
            Self::Not(inner) => inner.answer().map(|truth| !truth),
            Self::And(left, right) => match (left.answer(), right.answer()) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(left, right) => match (left.answer(), right.answer()) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        }
    }

    /// The text of the condition as an operand of an operator of this precedence: 1 OR, 2 AND, 3 NOT.
    fn written(&self, strength: u8) -> String {
        let (own, text) = match self {
            Self::Compare(left, operator, right) => {
                (3, format!("{} {operator} {}", left.written(1), right.written(1)))
            }
            Self::In(left, items) => {
                let items: Vec<_> = items.iter().map(|item| item.written(1)).collect();
                (3, format!("{} IN ({})", left.written(1), items.join(", ")))
            }
            Self::IsNull(inner) => (3, format!("{} IS NULL", inner.written(1))),
            Self::Truth(name) => (3, (*name).to_owned()),
            Self::Not(inner) => (3, format!("NOT {}", inner.written(3))),
            Self::And(left, right) => (2, format!("{} AND {}", left.written(2), right.written(3))),
            Self::Or(left, right) => (1, format!("{} OR {}", left.written(1), right.written(2))),
        };
        if own < strength { format!("({text})") } else { text }
    }
}

fn expressions() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        (-4..5_i64).prop_map(Expression::Number),
        prop::sample::select(&["two", "most", "void", "absent"][..]).prop_map(Expression::Property),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let operators = prop::sample::select(&['+', '-', '*', '/', '%'][..]);
        prop_oneof![
            4 => (inner.clone(), operators, inner.clone()).prop_map(|(left, operator, right)| {
                Expression::Operation(left.into(), operator, right.into())
            }),
            1 => inner.prop_map(|inner| Expression::Minus(inner.into())),
        ]
    })
}

fn conditions() -> impl Strategy<Value = Condition> {
    let operators = prop::sample::select(&["=", "<>", "<", ">="][..]);
    let leaf = prop_oneof![
        3 => (expressions(), operators, expressions())
            .prop_map(|(left, operator, right)| Condition::Compare(left, operator, right)),
        1 => (expressions(), prop::collection::vec(expressions(), 1..4))
            .prop_map(|(left, items)| Condition::In(left, items)),
        1 => expressions().prop_map(Condition::IsNull),
        2 => prop::sample::select(&["yes", "no", "void", "absent"][..]).prop_map(Condition::Truth),
    ];
    leaf.prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            1 => inner.clone().prop_map(|inner| Condition::Not(inner.into())),
            2 => (inner.clone(), inner.clone())
                .prop_map(|(left, right)| Condition::And(left.into(), right.into())),
            2 => (inner.clone(), inner)
                .prop_map(|(left, right)| Condition::Or(left.into(), right.into())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_answer_is_that_of_the_tree(condition in conditions()) {
        let text = condition.written(1);
        // A random condition may be longer than a filter is allowed to be.
        prop_assume!(text.chars().count() < 1_000);
        prop_assert_eq!(message().answer(&text), condition.answer(), "{}", text);
    }
}
