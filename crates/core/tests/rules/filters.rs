//! Conditions, for each rule of the grammar.

use barid_core::rules::{Filter, SqlFilter, SystemProperty};
use barid_core::value::Value;

use crate::message::{Message, NEW_ID};

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);
const UNKNOWN: Option<bool> = None;

/// A message with all kinds of values, by name.
fn message() -> Message {
    Message::default()
        .with("long", Value::Long(7))
        .with("least", Value::Long(i64::MIN))
        .with("double", Value::Double(7.0))
        .with("nan", Value::Double(f64::NAN))
        .with("text", "seven".into())
        .with("yes", true.into())
        .with("no", false.into())
        .with("nothing", Value::Null)
        .with("bytes", Value::Binary([1, 2].into()))
        .with("id", Value::Uuid(NEW_ID))
        .with("then", Value::Timestamp(1_000))
        .with("now", Value::Timestamp(3_500))
        .with("Größe", Value::Long(3))
        .with("with]bracket", Value::Long(4))
        .with("with\"quote", Value::Long(5))
        .with("and", Value::Long(6))
        .with_system(SystemProperty::Label, "it's".into())
        .with_system(SystemProperty::SequenceNumber, Value::Long(12))
        .with_system(SystemProperty::EnqueuedTimeUtc, Value::Timestamp(9_000))
}

fn check(table: &[(&str, Option<bool>)]) {
    let message = message();
    for (condition, answer) in table {
        assert_eq!(message.answer(condition), *answer, "{condition}");
    }
}

#[test]
fn truth_has_three_values() {
    let truths = [("yes", TRUE), ("no", FALSE), ("absent", UNKNOWN)];
    let message = message();
    for (left, one) in truths {
        for (right, other) in truths {
            let and = match (one, other) {
                (FALSE, _) | (_, FALSE) => FALSE,
                (TRUE, TRUE) => TRUE,
                _ => UNKNOWN,
            };
            let or = match (one, other) {
                (TRUE, _) | (_, TRUE) => TRUE,
                (FALSE, FALSE) => FALSE,
                _ => UNKNOWN,
            };
            assert_eq!(message.answer(&format!("{left} AND {right}")), and, "{left} AND {right}");
            assert_eq!(message.answer(&format!("{left} OR {right}")), or, "{left} OR {right}");
        }
        assert_eq!(message.answer(&format!("NOT {left}")), one.map(|truth| !truth), "NOT {left}");
    }
}

#[test]
fn a_side_that_is_not_needed_is_passed_over_and_nothing_else() {
    check(&[
        ("no AND yes OR yes", TRUE),
        ("yes OR no AND no", TRUE),
        ("yes OR no OR no", TRUE),
        ("no AND no AND yes", FALSE),
        ("(yes OR no) AND (no OR yes)", TRUE),
        ("no OR (no AND yes) OR NOT (yes OR no)", FALSE),
        ("NOT no AND NOT no", TRUE),
        ("NOT NOT yes", TRUE),
    ]);
}

#[test]
fn values_of_one_kind_are_compared() {
    check(&[
        ("long = 7", TRUE),
        ("long <> 7", FALSE),
        ("long != 8", TRUE),
        ("long < 8 AND long <= 7 AND long > 6 AND long >= 7", TRUE),
        ("long > 7 OR long < 7", FALSE),
        ("long = double AND double = 7", TRUE),
        ("long < 7.5", TRUE),
        ("text = 'seven'", TRUE),
        ("text = 'Seven'", FALSE),
        ("text < 'six' AND text > 'eight'", TRUE),
        ("yes = TRUE AND no = false", TRUE),
        ("yes > no", UNKNOWN),
        ("bytes = bytes", TRUE),
        ("bytes < bytes", UNKNOWN),
        ("id = newid()", TRUE),
        ("id <= newid()", UNKNOWN),
        ("then < now AND then <> now", TRUE),
        ("sys.EnqueuedTimeUtc > now", TRUE),
        ("nan = nan", UNKNOWN),
        ("nan <> 1", UNKNOWN),
    ]);
}

#[test]
fn values_of_different_kinds_are_not() {
    let values = ["7", "text", "yes", "nothing", "absent", "bytes", "id", "then"];
    let message = message();
    for (left, one) in values.iter().enumerate() {
        for other in &values[left + 1..] {
            for operator in ["=", "<>", "<", ">="] {
                let condition = format!("{one} {operator} {other}");
                assert_eq!(message.answer(&condition), UNKNOWN, "{condition}");
            }
        }
    }
}

#[test]
fn numbers_are_computed() {
    check(&[
        ("1 + 2 * 3 = 7", TRUE),
        ("(1 + 2) * 3 = 9", TRUE),
        ("10 - 4 - 3 = 3", TRUE),
        ("100 / 10 / 5 = 2", TRUE),
        ("7 / 2 = 3 AND -7 / 2 = -3", TRUE),
        ("7 % 4 = 3 AND -7 % 4 = -3", TRUE),
        ("7 / 2.0 = 3.5", TRUE),
        ("7.5 % 2 = 1.5", TRUE),
        ("long - -1 = 8", TRUE),
        ("long--1 = 8", TRUE),
        ("-long = - - -7", TRUE),
        ("+long = 7 AND +7 = 7", TRUE),
        ("1E3 = 1000 AND 0.5E-2 = .005 AND 25e+1 = 250", TRUE),
        ("least = -9223372036854775808", TRUE),
        ("9223372036854775807 + 1 = 0", UNKNOWN),
        ("-9223372036854775807 - 2 = 0", UNKNOWN),
        ("9223372036854775807 * 2 = 0", UNKNOWN),
        ("-least = 0", UNKNOWN),
        ("least / -1 = 0", UNKNOWN),
        ("least % -1 = 0", UNKNOWN),
        ("1 / 0 = 1 OR 1 % 0 = 1", UNKNOWN),
        ("1.0 / 0 = 1 OR 1 % 0.0 = 1", UNKNOWN),
        ("1E308 * 10 > 0", UNKNOWN),
        ("-absent = 1", UNKNOWN),
        ("absent + 1 = 1 OR 1 - absent = 1", UNKNOWN),
        ("text - 1 = 1 OR -text = 1 OR yes * 2 = 2", UNKNOWN),
    ]);
}

#[test]
fn texts_are_joined_and_times_are_moved() {
    check(&[
        ("text + '!' = 'seven!'", TRUE),
        ("'a' + 'b' + 'c' = 'abc'", TRUE),
        ("text + 7 = 'seven7'", UNKNOWN),
        ("text - 'n' = 'seve'", UNKNOWN),
        ("now - then = 2500", TRUE),
        ("now - 500 = then + 2000 AND 2500 + then = now", TRUE),
        ("now + then = 4500 OR now * 2 = 7000 OR now - 1.5 = 1", UNKNOWN),
    ]);
}

#[test]
fn a_text_that_is_put_together_has_a_bound() {
    let half: Box<str> = "x".repeat(barid_core::rules::JOINED_MAX / 2).into();
    let message = Message::default().with("half", Value::String(half));
    assert_eq!(message.answer("half + half > 'x'"), TRUE);
    assert_eq!(message.answer("half + half + 'x' > 'x'"), UNKNOWN);
}

#[test]
fn membership() {
    check(&[
        ("long IN (1, 7.0)", TRUE),
        ("long IN (1, 2)", FALSE),
        ("long NOT IN (1, 2)", TRUE),
        ("long NOT IN (1, 3 + 4)", FALSE),
        ("text IN ('six','seven')", TRUE),
        ("long IN (1, absent)", UNKNOWN),
        ("long NOT IN (1, NULL)", UNKNOWN),
        ("long IN (7, NULL)", TRUE),
        ("absent IN (1)", UNKNOWN),
        ("absent NOT IN (1)", UNKNOWN),
        ("long IN ('7')", UNKNOWN),
        ("long + 1 IN (8)", TRUE),
        ("2 IN (1, 2) AND 3 NOT IN (1, 2)", TRUE),
    ]);
}

#[test]
fn presence() {
    check(&[
        ("EXISTS(long)", TRUE),
        ("exists ( user.[long] )", TRUE),
        ("EXISTS(absent)", FALSE),
        ("EXISTS(nothing)", TRUE),
        ("EXISTS(sys.Label)", TRUE),
        ("NOT EXISTS(sys.To)", TRUE),
        ("long IS NULL", FALSE),
        ("long IS NOT NULL", TRUE),
        ("nothing IS NULL AND absent IS NULL AND sys.To IS NULL", TRUE),
        ("absent IS NOT NULL", FALSE),
        ("1 / 0 IS NULL", TRUE),
        ("NULL IS NULL", TRUE),
    ]);
}

#[test]
fn names() {
    check(&[
        ("LONG = 7 AND Long = 7 AND user.lOnG = 7 AND USER.long = 7", TRUE),
        ("Größe = 3", TRUE),
        ("[with]]bracket] = 4", TRUE),
        ("\"with\"\"quote\" = 5", TRUE),
        ("[and] = 6 AND user.and = 6", TRUE),
        ("sys.label = 'it''s' AND SYS.Subject = 'it''s'", TRUE),
        ("sys.[Label] = 'it''s'", TRUE),
        ("sys . Label = 'it''s'", TRUE),
        ("sys.sequencenumber = 12", TRUE),
        ("user = 1 OR sys = 1 OR p = 1 OR newid = 1", UNKNOWN),
        ("property('long') = 7 AND p('LONG') = 7 AND P('user.long') = 7", TRUE),
        ("property('sys.Label') = 'it''s'", TRUE),
        ("property('SYS.Label') = 'it''s'", TRUE),
        ("property('User.long') = 7", TRUE),
        ("property('sys.Nonsense') = 1", UNKNOWN),
        ("property('absent') = 1", UNKNOWN),
        ("property(long) = 7", UNKNOWN),
        ("property('ye' + 's')", TRUE),
        ("property('with]bracket') = 4", TRUE),
    ]);
}

#[test]
fn what_is_no_truth_is_no_condition() {
    check(&[("long", UNKNOWN), ("text OR no", UNKNOWN), ("TRUE", TRUE), ("false", FALSE)]);
}

#[test]
fn white_space_does_not_count() {
    check(&[("  long=7\tAND\r\nlong<8  ", TRUE), ("(long)=(7)AND(yes)", TRUE)]);
}

#[test]
fn parameters_have_values() {
    let parameters: Vec<(Box<str>, Value)> =
        vec![("@most".into(), Value::Long(9)), ("Since".into(), Value::Timestamp(2_000))];
    let filter = SqlFilter::new("long < @most AND now > @since", parameters.clone()).unwrap();
    assert!(filter.matches(&message()));
    assert_eq!(filter.parameters(), parameters);
    let filter = SqlFilter::new("@truth", vec![("truth".into(), true.into())]).unwrap();
    assert!(filter.matches(&message()));
}

#[test]
fn the_text_is_kept() {
    let text = " long  = 7";
    let filter: SqlFilter = text.parse().unwrap();
    assert_eq!(filter.text(), text);
    assert_eq!(filter.to_string().parse::<SqlFilter>().unwrap(), filter);
}

#[test]
fn all_and_none() {
    assert!(Filter::True.matches(&Message::default()));
    assert!(!Filter::False.matches(&Message::default()));
    assert!(Filter::Sql("1 = 1".parse().unwrap()).matches(&Message::default()));
}
