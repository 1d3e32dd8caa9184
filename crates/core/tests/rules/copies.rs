//! The copies of a message that the rules of a subscription make.

use barid_core::rules::{DEFAULT_RULE, Filter, RULE_NAME, Rule};
use barid_core::value::{Scope, Value};

use crate::message::Message;

fn rule(name: &str, filter: &str, action: Option<&str>) -> Rule {
    Rule {
        name: name.into(),
        filter: Filter::Sql(filter.parse().unwrap()),
        action: action.map(|text| text.parse().unwrap()),
    }
}

#[test]
fn the_first_rule_takes_everything() {
    let rule = Rule::default_rule();
    assert_eq!(&*rule.name, DEFAULT_RULE);
    assert_eq!(Rule::copies(&[rule], &Message::default())[..], [vec![]]);
}

#[test]
fn no_rule_takes_nothing() {
    assert!(Rule::copies(&[], &Message::default()).is_empty());
    assert!(Rule::copies(&[rule("a", "1 = 2", None)], &Message::default()).is_empty());
    assert!(Rule::copies(&[rule("a", "1 = 2", Some("SET a = 1"))], &Message::default()).is_empty());
}

#[test]
fn rules_without_an_action_share_a_copy() {
    let rules = [
        rule("a", "1 = 1", None),
        rule("b", "1 = 1", Some("SET x = 1")),
        rule("c", "1 = 1", None),
        rule("d", "1 = 2", Some("SET x = 2")),
        rule("e", "EXISTS(x)", None),
        rule("f", "1 = 1", Some("SET rulename = 'mine'")),
    ];
    let user = |name: &str, value: Value| (Scope::User, Box::from(name), value);
    let copies = Rule::copies(&rules, &Message::default());
    assert_eq!(
        copies[..],
        [
            vec![],
            vec![user("x", 1.into()), user(RULE_NAME, "b".into())],
            vec![user(RULE_NAME, "f".into())],
        ]
    );
}
