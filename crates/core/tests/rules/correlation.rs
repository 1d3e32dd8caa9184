//! Correlation filters.

use barid_core::rules::{CorrelationFilter, Filter, SystemProperty};
use barid_core::value::Value;

use crate::message::Message;

fn message() -> Message {
    Message::made_by(
        "SET sys.ContentType = 'ContentType'; SET sys.CorrelationId = 'CorrelationId';
         SET sys.Label = 'Label'; SET sys.MessageId = 'MessageId'; SET sys.ReplyTo = 'ReplyTo';
         SET sys.ReplyToSessionId = 'ReplyToSessionId'; SET sys.SessionId = 'SessionId';
         SET sys.To = 'To'; SET color = 'red'; SET version = 2; SET ok = TRUE; SET empty = NULL",
    )
}

fn matches(filter: CorrelationFilter) -> bool {
    Filter::Correlation(filter).matches(&message())
}

/// Creates a filter with one system property; `None` if filters cannot have it.
fn one(property: SystemProperty, value: &str) -> Option<CorrelationFilter> {
    let mut filter = CorrelationFilter::default();
    let field = match property {
        SystemProperty::ContentType => &mut filter.content_type,
        SystemProperty::CorrelationId => &mut filter.correlation_id,
        SystemProperty::Label => &mut filter.label,
        SystemProperty::MessageId => &mut filter.message_id,
        SystemProperty::ReplyTo => &mut filter.reply_to,
        SystemProperty::ReplyToSessionId => &mut filter.reply_to_session_id,
        SystemProperty::SessionId => &mut filter.session_id,
        SystemProperty::To => &mut filter.to,
        _ => return None,
    };
    *field = Some(value.into());
    Some(filter)
}

#[test]
fn every_system_property_by_itself() {
    let mut asked = 0;
    for property in SystemProperty::ALL {
        let name = property.name();
        let Some(filter) = one(property, name) else { continue };
        asked += 1;
        assert_eq!(filter.system().collect::<Vec<_>>(), [(property, name)]);
        assert!(matches(filter.clone()), "{name}");
        assert!(!filter.matches(&Message::default()), "{name} is not there");
        assert!(!matches(one(property, "other").unwrap()), "{name} is another");
        assert!(!matches(one(property, &name.to_lowercase()).unwrap()), "{name}: case counts");
    }
    assert_eq!(asked, 8);
}

#[test]
fn user_properties() {
    let with = |name: &str, value: Value| CorrelationFilter {
        properties: vec![(name.into(), value)],
        ..Default::default()
    };
    assert!(matches(with("color", "red".into())));
    assert!(matches(with("COLOR", "red".into())));
    assert!(!matches(with("color", "RED".into())));
    assert!(matches(with("version", 2.into())));
    assert!(matches(with("version", 2.0.into())));
    assert!(!matches(with("version", "2".into())));
    assert!(matches(with("ok", true.into())));
    assert!(!matches(with("absent", Value::Null)));
    assert!(!matches(with("empty", Value::Null)));
}

#[test]
fn all_of_them_have_to_be_equal() {
    let mut filter = CorrelationFilter {
        label: Some("Label".into()),
        to: Some("To".into()),
        properties: vec![("color".into(), "red".into()), ("version".into(), 2.into())],
        ..Default::default()
    };
    assert!(matches(filter.clone()));
    filter.properties[1].1 = 3.into();
    assert!(!matches(filter.clone()));
    filter.properties[1].1 = 2.into();
    filter.to = Some("elsewhere".into());
    assert!(!matches(filter));
}

#[test]
fn one_that_asks_for_nothing_takes_all() {
    assert!(CorrelationFilter::default().matches(&Message::default()));
}
