//! Patterns of LIKE.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::message::Message;

fn answer(text: &str, pattern: &str) -> Option<bool> {
    let message = Message::default().with("t", text.into()).with("p", pattern.into());
    let written = message.answer(&format!("t LIKE '{}'", pattern.replace('\'', "''")));
    assert_eq!(message.answer("t LIKE p"), written, "{pattern:?}, computed and written");
    written
}

#[test]
fn wildcards() {
    for (text, pattern, matches) in [
        ("", "", true),
        ("", "%", true),
        ("", "_", false),
        ("a", "", false),
        ("abc", "abc", true),
        ("abc", "ABC", false),
        ("abc", "ab", false),
        ("abc", "bc", false),
        ("abc", "a%", true),
        ("abc", "%c", true),
        ("abc", "%b%", true),
        ("abc", "a%c", true),
        ("abc", "a%b", false),
        ("abc", "a%%c", true),
        ("abc", "___", true),
        ("abc", "__", false),
        ("abc", "_%_%_", true),
        ("abc", "_%_%_%_", false),
        ("abab", "%ab", true),
        ("aab", "%ab", true),
        ("größe", "gr__e", true),
        ("größe", "gr_ße", true),
        ("a\nb", "a%b", true),
        ("a'b", "a'b", true),
        ("a.b", "a?b", false),
        ("mississippi", "%iss%ip%", true),
        ("mississippi", "%iss%iss%iss%", false),
    ] {
        assert_eq!(answer(text, pattern), Some(matches), "{text:?} LIKE {pattern:?}");
    }
}

#[test]
fn escapes() {
    let message = Message::default().with("t", "10%".into()).with("e", "!".into());
    for (condition, answer) in [
        (r"t LIKE '10\%' ESCAPE '\'", Some(true)),
        ("t LIKE '10!%' ESCAPE '!'", Some(true)),
        ("t LIKE '1_!%' ESCAPE '!'", Some(true)),
        ("t LIKE '1!_%' ESCAPE '!'", Some(false)),
        ("t LIKE '!1!0!%' ESCAPE '!'", Some(true)),
        ("t LIKE '10%%' ESCAPE '%'", Some(true)),
        ("t LIKE '10!%' ESCAPE e", Some(true)),
        ("t LIKE '10!' + '%' ESCAPE '!'", Some(true)),
        ("t NOT LIKE '10!%' ESCAPE '!'", Some(false)),
        ("t LIKE '10!' ESCAPE e", None),
        ("t LIKE '10!%' ESCAPE t", None),
        ("t LIKE '10!%' ESCAPE absent", None),
    ] {
        assert_eq!(message.answer(condition), answer, "{condition}");
    }
}

#[test]
fn only_texts_are_like_texts() {
    let message = Message::default().with("n", 1.into()).with("t", "1".into());
    for condition in
        ["n LIKE '1'", "absent LIKE '%'", "absent NOT LIKE '%'", "t LIKE n", "t LIKE absent"]
    {
        assert_eq!(message.answer(condition), None, "{condition}");
    }
}

#[test]
fn a_pattern_longer_than_a_word_of_the_machine() {
    for length in [63, 64, 65, 127, 128, 129, 900] {
        let text = "ab".repeat(length / 2 + 1)[..length].to_owned();
        assert_eq!(answer(&text, &text), Some(true), "{length}");
        assert_eq!(answer(&text, &"_".repeat(length)), Some(true), "{length}");
        assert_eq!(answer(&text, &"_".repeat(length + 1)), Some(false), "{length}");
        assert_eq!(answer(&text, &format!("%{}%", &text[length / 2..])), Some(true), "{length}");
        assert_eq!(answer(&format!("x{text}"), &text), Some(false), "{length}");
    }
}

#[test]
fn a_computed_pattern_has_a_bound() {
    let message = |length| Message::default().with("p", "%".repeat(length).as_str().into());
    assert_eq!(message(1024).answer("'x' LIKE p"), Some(true));
    assert_eq!(message(1025).answer("'x' LIKE p"), None);
}

/// With backtracking at each `%`, matching would take years.
#[test]
fn no_pattern_takes_long() {
    let text = "a".repeat(64 * 1024);
    let began = Instant::now();
    assert_eq!(answer(&text, &format!("{}b", "%a".repeat(400))), Some(false));
    assert_eq!(answer(&text, &format!("%{}b%", "a_".repeat(400))), Some(false));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// The textbook recursion.
fn matches(text: &[char], pattern: &[char]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        (['%', rest @ ..], _) => (0..=text.len()).any(|skipped| matches(&text[skipped..], rest)),
        (['_', rest @ ..], [_, text @ ..]) => matches(text, rest),
        ([wanted, rest @ ..], [found, text @ ..]) => wanted == found && matches(text, rest),
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn it_is_as_the_textbook_says(text in "[abé]{0,12}", pattern in "[abé%_]{0,8}") {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        let expected = matches(&characters(&text), &characters(&pattern));
        prop_assert_eq!(answer(&text, &pattern), Some(expected));
    }
}
