//! Tests of requests to `$cbs` and `$management`, and of the responses.

use barid_amqp::message::{
    Correlation, Field, Filter, Request, Response, Rule, Sections, ValueRef, Writer,
};
use fe2o3_amqp_types::messaging::Body;
use fe2o3_amqp_types::primitives::SimpleValue;
use serde_amqp::Value;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;

use super::{bytes, read};

const RENEW_PYTHON: &str = "005373c02c0d9800000000000000000000000000000009404040a10d712f246d616e6167656d656e744040404040404040005374c17508a1096f7065726174696f6ea118636f6d2e6d6963726f736f66743a72656e65772d6c6f636ba10474797065a10b656e746974792d6d676d74a1146173736f6369617465642d6c696e6b2d6e616d65a1016ca11c636f6d2e6d6963726f736f66743a7365727665722d74696d656f7574700000ea60005377c13202a10b6c6f636b2d746f6b656e73e02202980000000000000000000000000000000100000000000000000000000000000002";
const RENEW_JAVASCRIPT: &str = "00537045005373d00000000d00000005a10178404040a10172005374d10000002900000002a1096f7065726174696f6ea118636f6d2e6d6963726f736f66743a72656e65772d6c6f636b005377d10000003d00000006a10b6c6f636b2d746f6b656e73f000000015000000019801010101010101010101010101010101a1016e5403a1027473830000000000000005";
const PEEK: &str = "005373c01e0d9800000000000000000000000000000009404040404040404040404040005374c12802a1096f7065726174696f6ea11a636f6d2e6d6963726f736f66743a7065656b2d6d657373616765005377c13906a11466726f6d2d73657175656e63652d6e756d6265725501a10d6d6573736167652d636f756e745405a10a73657373696f6e2d6964a10173";
const SCHEDULE: &str = "005373c01e0d9800000000000000000000000000000009404040404040404040404040005374c12c02a1096f7065726174696f6ea11e636f6d2e6d6963726f736f66743a7363686564756c652d6d657373616765005377c13b02a1086d65737361676573c02e01c12b06a10a6d6573736167652d696440a1076d657373616765a003616263a10a73657373696f6e2d6964a10173";
const TOKEN: &str = "005373c01e0d9800000000000000000000000000000009404040404040404040404040005374c14708a1046e616d65a10873623a2f2f682f71a1096f7065726174696f6ea1097075742d746f6b656ea10474797065a1036a7774a10a65787069726174696f6e83000000006b017541005377a11a5368617265644163636573735369676e61747572652073723d78";

#[test]
fn tokens_of_locks_come_in_arrays() {
    let tokens = |request: &Request<'_>| -> Vec<_> {
        let tokens = request.argument("lock-tokens").items().unwrap();
        tokens.map(|token| u128::from_be_bytes(token.uuid().unwrap())).collect()
    };
    let message = bytes(RENEW_PYTHON);
    let request = Request::parse(&message).unwrap();
    assert_eq!(request.operation(), Some("com.microsoft:renew-lock"));
    assert_eq!(request.message_id(), ValueRef::Uuid(9u128.to_be_bytes()));
    assert_eq!(request.reply_to(), Some("q/$management"));
    let link = request.application_property("associated-link-name").unwrap();
    assert_eq!(link.text(), Some("l"));
    assert_eq!(tokens(&request), [1, 2]);

    let message = bytes(RENEW_JAVASCRIPT);
    let request = Request::parse(&message).unwrap();
    assert_eq!(request.message_id(), ValueRef::String("x"));
    assert_eq!(tokens(&request), [u128::from_be_bytes([1; 16])]);
    assert_eq!(request.argument("n").integer(), Some(3));
    assert_eq!(request.argument("ts").timestamp(), Some(5));
}

#[test]
fn arguments_are_tolerant() {
    let message = bytes(PEEK);
    let request = Request::parse(&message).unwrap();
    assert_eq!(request.argument("from-sequence-number").integer(), Some(1));
    assert_eq!(request.argument("message-count").integer(), Some(5));
    assert_eq!(request.argument("session-id").text(), Some("s"));
    assert!(request.argument("omit-message-body").is_null());

    let message = bytes(SCHEDULE);
    let request = Request::parse(&message).unwrap();
    let mut messages = request.argument("messages").items().unwrap();
    let first = messages.next().unwrap().map().unwrap();
    assert_eq!(first.get("message").unwrap().binary(), Some(&b"abc"[..]));
    assert_eq!(first.get("message-id"), Some(ValueRef::Null));
    assert_eq!(messages.next(), None);
}

#[test]
fn a_token_is_the_body() {
    let message = bytes(TOKEN);
    let request = Request::parse(&message).unwrap();
    assert_eq!(request.operation(), Some("put-token"));
    assert_eq!(request.application_property("name").unwrap().text(), Some("sb://h/q"));
    assert_eq!(request.body().text(), Some("SharedAccessSignature sr=x"));
    assert!(request.argument("anything").is_null());
}

#[test]
fn responses_have_both_spellings_and_the_type_of_the_id() {
    let response = Response {
        status: 200,
        description: "OK",
        condition: None,
        correlation_id: ValueRef::Uuid(9u128.to_be_bytes()),
    };
    let mut out = Vec::new();
    response.encode(
        |map| {
            map.value(ValueRef::String("expirations"));
            map.timestamps([1, 2]);
            map.value(ValueRef::String("sequence-numbers"));
            map.longs([3]);
            map.value(ValueRef::String("sessions-ids"));
            map.strings(["a", "b"]);
            map.entry("session-state", ValueRef::Null);
            map.value(ValueRef::String("messages"));
            map.list(|list| list.map(|one| one.entry("message", ValueRef::Binary(b"abc"))));
        },
        &mut out,
    );
    let message = read(&out);
    let properties = message.application_properties.unwrap().0;
    for key in ["statusCode", "status-code"] {
        assert_eq!(properties.get(key), Some(&SimpleValue::Int(200)), "{key}");
    }
    assert!(!properties.contains_key("errorCondition"));
    let id = Sections::split(&out).unwrap().properties().value(Field::CorrelationId);
    assert_eq!(id, ValueRef::Uuid(9u128.to_be_bytes()));

    let body = Request::parse(&out).unwrap();
    let numbers = |name| -> Vec<_> {
        body.argument(name).items().unwrap().map(|one| one.timestamp().unwrap()).collect()
    };
    assert_eq!(numbers("expirations"), [1, 2]);
    assert_eq!(numbers("sequence-numbers"), [3]);
    let ids: Vec<_> = body.argument("sessions-ids").items().unwrap().collect();
    assert_eq!(ids, [ValueRef::String("a"), ValueRef::String("b")]);
    assert!(body.body().map().unwrap().get("session-state").unwrap().is_null());
}

#[test]
fn refusals_have_a_condition() {
    let response = Response {
        status: 410,
        description: "gone",
        condition: Some("com.microsoft:session-lock-lost"),
        correlation_id: ValueRef::String("x"),
    };
    let mut out = Vec::new();
    response.encode(|_| {}, &mut out);
    let sections = Sections::split(&out).unwrap();
    let condition = sections.application_properties().get("errorCondition");
    assert_eq!(condition, Some(ValueRef::Symbol("com.microsoft:session-lock-lost")));
    assert!(
        matches!(read(&out).body, Body::Value(value) if value.0 == Value::Map(Default::default()))
    );
}

#[test]
fn rules_go_both_ways() {
    let correlation = Correlation {
        label: Some("l"),
        session_id: Some("s"),
        properties: vec![("key", ValueRef::Int(300))],
        ..Correlation::default()
    };
    let rule = Rule {
        name: Some("r"),
        filter: Filter::Correlation(Box::new(correlation.clone())),
        action: Some("SET x = 1"),
    };
    let mut argument = Vec::new();
    Writer::new(&mut argument).map(|map| {
        map.entry("rule-name", ValueRef::String("r"));
        map.value(ValueRef::Symbol("correlation-filter"));
        map.map(|filter| {
            filter.entry("label", ValueRef::String("l"));
            filter.entry("session-id", ValueRef::String("s"));
            filter.entry("correlation-id", ValueRef::Null);
            filter.value(ValueRef::String("properties"));
            filter.map(|all| all.entry("key", ValueRef::Int(300)));
        });
        map.entry("sql-filter", ValueRef::Null);
        map.value(ValueRef::String("sql-rule-action"));
        map.map(|action| action.entry("expression", ValueRef::String("SET x = 1")));
    });
    assert_eq!(Rule::parse(ValueRef::parse(&argument).unwrap()), Some(rule.clone()));

    let described = |value: Value| match value {
        Value::Described(described) => match *described {
            Described { descriptor: Descriptor::Code(code), value: Value::List(list) } => {
                (code, list)
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut out = Vec::new();
    rule.write(&mut Writer::new(&mut out));
    let (code, fields) = described(serde_amqp::from_slice(&out).unwrap());
    assert_eq!(code, 1_335_734_829_060);
    let [filter, action, name] = <[Value; 3]>::try_from(fields).unwrap();
    assert_eq!(name, Value::String("r".into()));
    let (code, action) = described(action);
    assert_eq!((code, &action[..]), (1_335_734_829_062, &[Value::String("SET x = 1".into())][..]));
    let (code, filter) = described(filter);
    assert_eq!((code, filter.len()), (83_483_426_825, 9));
    assert_eq!(filter[4], Value::String("l".into()));

    let codes = [
        (Filter::Sql("a = 1"), 83_483_426_822),
        (Filter::True, 83_483_426_823),
        (Filter::False, 83_483_426_824),
    ];
    for (filter, code) in codes {
        let mut out = Vec::new();
        Rule { name: None, filter, action: None }.write(&mut Writer::new(&mut out));
        let (_, mut fields) = described(serde_amqp::from_slice(&out).unwrap());
        assert_eq!(described(fields.remove(1)).0, 1_335_734_829_061);
        assert_eq!(described(fields.remove(0)).0, code);
    }
}

#[test]
fn a_description_without_an_expression_is_none() {
    let mut argument = Vec::new();
    Writer::new(&mut argument).map(|map| {
        map.value(ValueRef::String("sql-filter"));
        map.map(|_| {});
    });
    assert_eq!(Rule::parse(ValueRef::parse(&argument).unwrap()), None);
    assert_eq!(Rule::parse(ValueRef::String("sql")), None);
}
