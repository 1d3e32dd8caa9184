//! Checks that the statements in `docs/rules.md` are true.

use barid_core::rules::{Action, DEPTH_MAX, JOINED_MAX, SqlFilter, SystemProperty, TEXT_MAX};
use barid_core::value::{Scope, Value};

use crate::message::Message;

const GUIDE: &str = include_str!("../../../../docs/rules.md");

fn message() -> Message {
    let action = section("message").trim_start_matches("```sql\n");
    Message::made_by(action.split("```").next().unwrap())
}

/// Returns the text after the comment of that name.
fn section(name: &str) -> &'static str {
    let (_, section) = GUIDE.split_once(&format!("<!-- {name} -->\n")).unwrap();
    section
}

/// Returns the two cells of each row of the table after the comment of that name.
fn table(name: &str) -> Vec<(&'static str, &'static str)> {
    let rows = section(name).lines().take_while(|line| line.starts_with('|')).skip(2);
    let rows: Vec<_> = rows
        .map(|row| {
            let row = row.trim_start_matches("| ").trim_end_matches('|').trim_end();
            let (one, other) = row.split_once(" |").unwrap();
            (one, other.trim())
        })
        .collect();
    assert!(rows.len() >= 3, "{name}");
    rows
}

/// Returns the texts in backquotes.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_filters_do_what_it_says() {
    let message = message();
    for (filter, says) in table("filters") {
        let filter = code(filter)[0];
        let passes = filter.parse::<SqlFilter>().unwrap().matches(&message);
        let word = if passes { "passes" } else { "does not" };
        assert!(says.starts_with(word), "{filter}: {says}, but it {word}");
    }
}

#[test]
fn the_answers_are_those() {
    let message = message();
    for (condition, says) in table("answers") {
        let answer = message.answer(code(condition)[0]);
        let answer = answer.map_or("unknown".to_owned(), |truth| truth.to_string());
        assert_eq!(answer, says, "{condition}");
    }
    let alternative = "weight IS NULL OR weight <> 5";
    assert!(GUIDE.contains(alternative));
    assert_eq!(message.answer(alternative), Some(true));
}

#[test]
fn the_actions_do_what_it_says() {
    let message = message();
    for (action, says) in table("actions") {
        let changes = code(action)[0].parse::<Action>().unwrap().changes(&message);
        let changes: Vec<String> = changes
            .into_iter()
            .map(|(scope, name, value)| {
                let scope = if scope == Scope::System { "sys." } else { "" };
                match value {
                    Value::Null => format!("{scope}{name} is gone"),
                    Value::Long(number) => format!("{scope}{name} = {number}"),
                    Value::String(text) => format!("{scope}{name} = '{text}'"),
                    other => panic!("{other:?} is not in the guide"),
                }
            })
            .collect();
        assert_eq!(changes, code(says), "{action}");
    }
}

#[test]
fn the_errors_are_those() {
    for (filter, says) in table("errors") {
        let error = code(filter)[0].parse::<SqlFilter>().unwrap_err();
        assert_eq!(error.to_string(), says, "{filter}");
    }
}

#[test]
fn every_system_property_is_named() {
    let mut named: Vec<&str> = section("system properties")
        .lines()
        .take_while(|line| line.starts_with('|'))
        .flat_map(code)
        .collect();
    named.sort_unstable();
    assert_eq!(named, SystemProperty::ALL.map(SystemProperty::name));
}

#[test]
fn the_limits_are_those() {
    let (_, limits) = GUIDE.split_once("## Limits").unwrap();
    for limit in [TEXT_MAX, DEPTH_MAX, JOINED_MAX] {
        assert!(limits.contains(&format!("| {limit}")), "{limit}");
    }
}
