//! Any text and any message: no panic, and an error that gives the place.

use barid_core::rules::{Action, SqlFilter};
use proptest::prelude::*;

use crate::message::Message;

const WORDS: [&str; 44] = [
    "AND",
    "OR",
    "NOT",
    "LIKE",
    "ESCAPE",
    "IN",
    "IS",
    "NULL",
    "EXISTS",
    "TRUE",
    "FALSE",
    "SET",
    "REMOVE",
    "sys.",
    "user.",
    "Label",
    "SequenceNumber",
    "p",
    "newid",
    "a",
    "b",
    "[c d]",
    "(",
    "(",
    ")",
    ")",
    ",",
    ";",
    "=",
    "<>",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "'x'",
    "'%x_'",
    "1",
    "9223372036854775807",
    "2.5",
    "0",
    "@p",
];

fn try_out(text: &str) {
    let message = Message::made_by("SET a = 1; SET b = 'x'; SET sys.Label = '%'");
    let length = text.chars().count();
    match text.parse::<SqlFilter>() {
        Ok(filter) => {
            let _ = filter.matches(&message);
            let opposite = format!("NOT ({text})").parse::<SqlFilter>();
            if let Ok(opposite) = opposite {
                assert!(!(filter.matches(&message) && opposite.matches(&message)), "{text}");
            }
        }
        Err(error) => assert!((1..=length + 1).contains(&error.at), "{text:?}: {error}"),
    }
    match text.parse::<Action>() {
        Ok(action) => {
            let _ = action.changes(&message);
        }
        Err(error) => assert!((1..=length + 1).contains(&error.at), "{text:?}: {error}"),
    }
}

proptest! {
    #[test]
    fn any_text(text in "\\PC{0,60}") {
        try_out(&text);
    }

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..30)) {
        try_out(&words.join(" "));
        try_out(&format!("SET a = {}", words.join(" ")));
    }
}
