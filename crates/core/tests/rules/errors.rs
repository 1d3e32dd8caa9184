//! Errors and their messages.

use barid_core::rules::{Action, DEPTH_MAX, ParseError, Reason, SqlFilter, TEXT_MAX};

fn filter_error(text: &str) -> ParseError {
    text.parse::<SqlFilter>().expect_err(text)
}

#[test]
fn filters() {
    for (text, error) in [
        ("", "at 1: expected a value, found the end"),
        ("   ", "at 4: expected a value, found the end"),
        ("color =", "at 8: expected a value, found the end"),
        ("größe = AND x = 1", "at 9: expected a value, found AND"),
        ("'a'", "at 1: expected a condition, found a value"),
        ("7 OR TRUE", "at 1: expected a condition, found a value"),
        ("TRUE AND 7", "at 10: expected a condition, found a value"),
        ("NOT 'a'", "at 5: expected a condition, found a value"),
        ("NULL", "at 1: expected a condition, found a value"),
        ("(a = 1) + 1 = 2", "at 1: expected a value, found a condition"),
        ("1 + (a = 1) = 2", "at 5: expected a value, found a condition"),
        ("-(a = 1) = 2", "at 2: expected a value, found a condition"),
        ("a = (b = c)", "at 5: expected a value, found a condition"),
        ("(a = 1) IS NULL", "at 1: expected a value, found a condition"),
        ("(a = 1) IN (1)", "at 1: expected a value, found a condition"),
        ("a LIKE (b = 1)", "at 8: expected a value, found a condition"),
        ("a = b = c", "at 7: expected an operator or the end, found ="),
        ("a = 1)", "at 6: expected an operator or the end, found )"),
        ("(a = 1", "at 7: expected an operator or ), found the end"),
        ("a = 1 AND", "at 10: expected a value, found the end"),
        ("a IS 1", "at 6: expected NULL or NOT NULL, found 1"),
        ("a IS NOT b", "at 10: expected NULL, found b"),
        ("a NOT b", "at 7: expected LIKE or IN, found b"),
        ("a IN 1", "at 6: expected ( and values, found 1"),
        ("a IN ()", "at 7: expected a value, found )"),
        ("a IN (1 2)", "at 9: expected , or ), found 2"),
        ("EXISTS a", "at 8: expected ( and a property, found a"),
        ("EXISTS('a')", "at 8: expected a property, found 'a'"),
        ("EXISTS(a = 1)", "at 10: expected ), found ="),
        (
            "lower(a) = 'b'",
            "at 1: expected newid, property or p, which are all functions there are, found lower",
        ),
        ("newid(1) = a", "at 7: expected ), found 1"),
        ("property() = a", "at 10: expected a value, found )"),
        (
            "a.b = 1",
            "at 1: expected sys. or user., or [ ] around a name with a point in it, found a",
        ),
        ("user. = 1", "at 7: expected the name of a property, found ="),
        ("sys.Nonsense = 1", "at 5: there is no system property sys.Nonsense"),
        ("EXISTS(sys.[x y])", "at 12: there is no system property sys.x y"),
        ("a = 'b", "at 5: a text begins here and does not end"),
        ("a = 'b''", "at 5: a text begins here and does not end"),
        ("[a = 1", "at 1: a name begins here and does not end"),
        ("\"a = 1", "at 1: a name begins here and does not end"),
        ("a = 1x", "at 6: expected the end of the number, found x"),
        ("a = 0x1F", "at 6: expected the end of the number, found x"),
        ("a = 1e", "at 7: expected the digits of an exponent, found the end"),
        ("a = 1e+b", "at 8: expected the digits of an exponent, found b"),
        ("a = 9223372036854775808", "at 5: the number is too large"),
        ("a = 1E999", "at 5: the number is too large"),
        ("a = #", "at 5: expected a name, a value or an operator, found #"),
        ("a = @b", "at 5: the parameter @b has no value"),
        ("a LIKE 'b' ESCAPE '!!'", "at 19: expected a text of one character, found '!!'"),
        ("a LIKE b ESCAPE ''", "at 17: expected a text of one character, found ''"),
        (
            "a LIKE 'b!' ESCAPE '!'",
            "at 8: expected a character behind the escape character, found the end of the pattern",
        ),
        ("SET = 1", "at 1: expected a value, found SET"),
    ] {
        assert_eq!(filter_error(text).to_string(), error, "{text}");
    }
}

#[test]
fn actions() {
    for (text, error) in [
        ("", "at 1: expected SET or REMOVE, found the end"),
        (";", "at 1: expected SET or REMOVE, found ;"),
        ("a = 1", "at 1: expected SET or REMOVE, found a"),
        ("SET a", "at 6: expected =, found the end"),
        ("SET a = ", "at 9: expected a value, found the end"),
        ("SET 'a' = 1", "at 5: expected a property, found 'a'"),
        ("SET a = (b > 1)", "at 9: expected a value, found a condition"),
        ("SET a = 1, b = 2", "at 10: expected SET or REMOVE, found ,"),
        ("SET a = 1;; SET b = 2", "at 11: expected SET or REMOVE, found ;"),
        ("SET a = b > 1", "at 11: expected SET or REMOVE, found >"),
        ("SET sys.SequenceNumber = 1", "at 5: an action cannot change sys.SequenceNumber"),
        ("REMOVE sys.EnqueuedTimeUtc", "at 8: an action cannot change sys.EnqueuedTimeUtc"),
        ("REMOVE sys.Nonsense", "at 12: there is no system property sys.Nonsense"),
    ] {
        assert_eq!(text.parse::<Action>().expect_err(text).to_string(), error, "{text}");
    }
}

#[test]
fn a_long_text() {
    let text = |length: usize| format!("é = '{}'", "é".repeat(length - 6));
    assert!(text(TEXT_MAX).parse::<SqlFilter>().is_ok());
    let error = filter_error(&text(TEXT_MAX + 1));
    assert_eq!(error, ParseError { at: TEXT_MAX + 1, reason: Reason::TooLong });
}

#[test]
fn a_deep_text() {
    let nested = |open: &str, depth, close: &str| {
        format!("a = a OR {}a{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [("(", ")"), ("NOT ", ""), ("p(", ")")] {
        let text = |depth| nested(open, depth, close);
        assert!(text(DEPTH_MAX).parse::<SqlFilter>().is_ok(), "{open}");
        assert_eq!(filter_error(&text(DEPTH_MAX + 1)).reason, Reason::TooDeep, "{open}");
    }
    let signs = |depth| format!("1 = {}a", "-".repeat(depth));
    assert!(signs(DEPTH_MAX).parse::<SqlFilter>().is_ok());
    assert_eq!(filter_error(&signs(DEPTH_MAX + 1)).reason, Reason::TooDeep);
    let items = |depth| format!("a IN ({}1{})", "(".repeat(depth), ")".repeat(depth));
    assert!(items(DEPTH_MAX - 1).parse::<SqlFilter>().is_ok(), "the list itself counts");
    assert_eq!(filter_error(&items(DEPTH_MAX)).reason, Reason::TooDeep);
}

/// A sequence of operators does not count as nesting.
#[test]
fn a_wide_text() {
    let sum = format!("{}1 = 500", "1+".repeat(499));
    assert!(sum.parse::<SqlFilter>().unwrap().matches(&crate::message::Message::default()));
    let or = format!("{}1=1", "a OR ".repeat(200));
    assert!(or.parse::<SqlFilter>().unwrap().matches(&crate::message::Message::default()));
}

#[test]
fn a_message_does_not_repeat_a_long_token() {
    let error = filter_error(&format!("a = 1 '{}'", "b".repeat(500)));
    assert!(error.to_string().len() < 100, "{error}");
}
