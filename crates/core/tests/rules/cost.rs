//! Costs of filters and actions, in steps; nothing is executed without having been paid for.

use std::cell::Cell;

use barid_core::rules::{Action, Properties, SqlFilter, SystemProperty};
use barid_core::value::ValueRef;

use crate::message::{Message, NEW_ID};

/// A message with a limited number of steps for rules.
struct Priced {
    message: Message,
    left: Cell<Option<usize>>,
}

impl Priced {
    fn new(message: Message, steps: usize) -> Self {
        Self { message, left: Cell::new(Some(steps)) }
    }

    fn is_spent(&self) -> bool {
        self.left.get().is_none()
    }
}

impl Properties for Priced {
    fn system(&self, property: SystemProperty) -> Option<ValueRef<'_>> {
        self.message.system(property)
    }

    fn user(&self, name: &str) -> Option<ValueRef<'_>> {
        self.message.user(name)
    }

    fn new_id(&self) -> [u8; 16] {
        NEW_ID
    }

    fn spend(&self, steps: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(steps)));
        !self.is_spent()
    }
}

fn filter(text: &str) -> SqlFilter {
    text.parse().unwrap()
}

/// Returns the number of steps that a condition costs for a message.
fn cost(condition: &str, message: Message) -> usize {
    let priced = Priced::new(message, usize::MAX);
    filter(condition).matches(&priced);
    usize::MAX - priced.left.get().unwrap()
}

fn text(length: usize) -> Message {
    Message::default().with("p", "a".repeat(length).as_str().into())
}

#[test]
fn like_costs_what_text_and_pattern_are_long() {
    let pieces = format!("p LIKE '%{}b'", "a%".repeat(490));
    let (short, long) = (cost(&pieces, text(20_000)), cost(&pieces, text(200_000)));
    assert!(long < 200_000, "a step for a character, though the pattern has a thousand: {long}");
    assert!(long < 20 * short, "{short}, {long}");
    // Only a piece with `_` costs the length of the text times that of the piece, divided by the
    // bits of a machine word.
    let places = format!("p LIKE '%{}b%'", "a_".repeat(480));
    assert!(cost(&places, text(200_000)) <= 200_000 * 961_usize.div_ceil(64) + 1_000);
}

#[test]
fn what_is_not_paid_for_is_unknown() {
    let condition = format!("p LIKE '%{}b%'", "a_".repeat(480));
    for condition in [condition.clone(), format!("NOT ({condition})")] {
        let priced = Priced::new(text(200_000), 10_000);
        assert!(!filter(&condition).matches(&priced), "{condition}");
        assert!(priced.is_spent());
    }
}

#[test]
fn every_part_of_a_condition_costs() {
    let message = || text(64_000);
    let once = cost("p = p", message());
    for (condition, times) in
        [("p <> p OR p <> p", 2), ("p IN (p, p, p, p)", 4), ("p + p + p = p", 3)]
    {
        let dear = cost(condition, message());
        assert!(dear >= times * (once - 3), "{condition}: {dear}, and once {once}");
    }
}

#[test]
fn actions_cost_as_well() {
    let action: Action = "SET q = p + p; SET r = p + p; SET s = p + p".parse().unwrap();
    let priced = Priced::new(text(30_000), 100);
    action.changes(&priced);
    assert!(priced.is_spent());
}
