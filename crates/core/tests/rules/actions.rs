//! Changes made by actions.

use barid_core::rules::{Action, Change, SystemProperty};
use barid_core::value::{Scope, Value};

use crate::message::{Message, NEW_ID};

fn message() -> Message {
    Message::made_by("SET quantity = 10; SET color = 'red'; SET sys.Label = 'a'")
        .with("at", Value::Timestamp(5))
        .with("bytes", Value::Binary([1].into()))
}

fn changes(action: &str) -> Vec<Change> {
    action.parse::<Action>().unwrap().changes(&message())
}

fn user(name: &str, value: impl Into<Value>) -> Change {
    (Scope::User, name.into(), value.into())
}

fn system(name: &str, value: impl Into<Value>) -> Change {
    (Scope::System, name.into(), value.into())
}

#[test]
fn set() {
    assert_eq!(changes("SET quantity = quantity / 2;"), [user("quantity", 5)]);
    assert_eq!(changes("set user.x = -1.5"), [user("x", -1.5)]);
    assert_eq!(changes("SET [a b] = color + '!'"), [user("a b", "red!")]);
    assert_eq!(changes("SET yes = TRUE"), [user("yes", true)]);
    assert_eq!(changes("SET id = newid()"), [user("id", Value::Uuid(NEW_ID))]);
    assert_eq!(changes("SET then = at + 5"), [user("then", Value::Timestamp(10))]);
    assert_eq!(changes("SET sys.subject = color"), [system("Label", "red")]);
}

#[test]
fn remove() {
    assert_eq!(changes("REMOVE color"), [user("color", Value::Null)]);
    assert_eq!(changes("REMOVE sys.Label"), [system("Label", Value::Null)]);
    assert_eq!(changes("remove absent"), [user("absent", Value::Null)]);
}

#[test]
fn what_is_unknown_is_removed() {
    for action in
        ["SET color = absent", "SET color = NULL", "SET color = 1 / 0", "SET color = color * 2"]
    {
        assert_eq!(changes(action), [user("color", Value::Null)], "{action}");
    }
    assert_eq!(changes("SET sys.Label = absent"), [system("Label", Value::Null)]);
}

#[test]
fn statements_follow_one_another() {
    let expected = [user("a", 1), user("b", 2), system("To", "x")];
    for action in [
        "SET a = 1; SET b = 2; SET sys.To = 'x';",
        "SET a = 1 SET b = 2 SET sys.To = 'x'",
        "SET a = 1\nSET b = 2\nSET sys.To = 'x'\n",
        "SET a=1;SET b=a+1;SET sys.To='x'",
    ] {
        assert_eq!(changes(action), expected, "{action}");
    }
}

#[test]
fn a_statement_sees_the_ones_before() {
    assert_eq!(changes("SET a = 1; SET A = a + 1"), [user("A", 2)]);
    assert_eq!(
        changes("REMOVE color; SET b = color"),
        [user("color", Value::Null), user("b", Value::Null)]
    );
    assert_eq!(
        changes("SET sys.Label = 'b'; SET l = sys.Label + property('sys.label')"),
        [system("Label", "b"), user("l", "bb")]
    );
    // The same name in two scopes denotes two properties.
    assert_eq!(
        changes("SET sys.To = 'x'; SET To = 'y'; SET z = To + sys.To"),
        [system("To", "x"), user("To", "y"), user("z", "yx")]
    );
}

#[test]
fn system_properties_keep_their_kind() {
    assert_eq!(changes("SET sys.To = 5"), [system("To", "5")]);
    assert_eq!(changes("SET sys.To = 2.5"), [system("To", "2.5")]);
    assert_eq!(changes("SET sys.To = TRUE"), [system("To", "true")]);
    let written = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    assert_eq!(changes("SET sys.MessageId = newid()"), [system("MessageId", written)]);
    assert_eq!(changes("SET sys.TimeToLive = 5000"), [system("TimeToLive", 5000)]);
    let scheduled = system("ScheduledEnqueueTimeUtc", Value::Timestamp(6));
    assert_eq!(changes("SET sys.ScheduledEnqueueTime = at + 1"), [scheduled]);
    for action in [
        "SET sys.To = at",
        "SET sys.To = bytes",
        "SET sys.TimeToLive = 'x'",
        "SET sys.TimeToLive = 1.5",
        "SET sys.ScheduledEnqueueTimeUtc = 5",
    ] {
        assert_eq!(changes(action), [], "{action}");
    }
}

#[test]
fn what_the_broker_gives_cannot_be_changed() {
    for property in SystemProperty::ALL {
        let action = format!("REMOVE sys.{}", property.name()).parse::<Action>();
        assert_eq!(action.is_ok(), property.is_settable(), "{}", property.name());
    }
}

#[test]
fn the_body_may_be_named_and_stays() {
    assert_eq!(changes("SET sys.body = 'x'; SET a = 1; REMOVE SYS.Body"), [user("a", 1)]);
    assert!("SET a = sys.body".parse::<Action>().is_err());
}

/// A short action that doubles a text with each statement must not exhaust the memory.
#[test]
fn texts_do_not_grow_without_bound() {
    let action = "SET a = a + a;".repeat(70);
    let message = Message::default().with("a", "0123456789".into());
    let changes = action.parse::<Action>().unwrap().changes(&message);
    assert_eq!(changes, [user("a", Value::Null)]);
}

#[test]
fn the_text_is_kept() {
    let action: Action = " SET  a = 1 ".parse().unwrap();
    assert_eq!(action.text(), " SET  a = 1 ");
    assert_eq!(action.to_string().parse::<Action>().unwrap(), action);
}
