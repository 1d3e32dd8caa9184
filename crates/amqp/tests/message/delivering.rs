//! Tests of messages as receivers get them.

use barid_amqp::message::{Change, Delivered, Scope, Sections, State, ValueRef};
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{Annotations, MessageAnnotations};
use serde_amqp::Value;
use serde_amqp::primitives::{Symbol, Timestamp};

use super::{FRESH, JAVASCRIPT, JAVASCRIPT_BARE, PYTHON, bytes, deliver, read};

fn annotations(delivered: &[u8]) -> Annotations {
    let MessageAnnotations(all) = read(delivered).message_annotations.expect("annotations");
    all
}

#[test]
fn what_the_sender_said_stays() {
    for message in [PYTHON, JAVASCRIPT].map(bytes) {
        let out = deliver(&message, &FRESH);
        let (before, after) = (read(&message), read(&out));
        assert_eq!(after.body, before.body);
        assert_eq!(after.application_properties, before.application_properties);
        let (before, mut after) = (before.properties.unwrap(), after.properties.unwrap());
        assert_eq!(after.absolute_expiry_time, None, "the broker knows better");
        after.absolute_expiry_time = before.absolute_expiry_time.clone();
        assert_eq!(after, before);
    }
}

#[test]
fn the_header_is_always_there() {
    let header = read(&deliver(b"", &FRESH)).header.unwrap();
    assert_eq!(header.delivery_count, 0);
    let delivered = Delivered { delivery_count: 300, ttl: Some(5_000), ..FRESH };
    let header = read(&deliver(&bytes(PYTHON), &delivered)).header.unwrap();
    assert_eq!((header.delivery_count, header.ttl), (300, Some(5_000)));
    let header = read(&deliver(&bytes(PYTHON), &FRESH)).header.unwrap();
    assert_eq!(header.ttl, Some(60_000));
}

#[test]
fn annotations_have_the_types_of_the_clients() {
    let delivered = Delivered {
        sequence_number: 1 << 40,
        state: State::Deferred,
        scheduled_at: Some(9),
        dead_letter_source: Some("q"),
        lock_token: Some(1u128.to_be_bytes()),
        ..FRESH
    };
    let out = deliver(&bytes(JAVASCRIPT), &delivered);
    let all = annotations(&out);
    let of = |name: &str| all.get(&OwnedKey::from(Symbol::from(name))).unwrap();
    assert_eq!(of("x-opt-sequence-number"), &Value::Long(1 << 40));
    assert_eq!(of("x-opt-enqueue-sequence-number"), &Value::Long(7));
    let time = |ms| Value::Timestamp(Timestamp::from_milliseconds(ms));
    assert_eq!(of("x-opt-enqueued-time"), &time(1_000));
    assert_eq!(of("x-opt-locked-until"), &time(31_000));
    assert_eq!(of("x-opt-scheduled-enqueue-time"), &time(9));
    assert_eq!(of("x-opt-message-state"), &Value::Int(1));
    assert_eq!(of("x-opt-deadletter-source"), &Value::String("q".into()));
    assert_eq!(of("x-opt-partition-key"), &Value::String("s1".into()));
    assert_eq!(all.len(), 8);
    let token = Sections::split(&out).unwrap().delivery_annotations().get("x-opt-lock-token");
    assert_eq!(token, Some(ValueRef::Uuid(1u128.to_be_bytes())));
}

#[test]
fn a_sender_cannot_forge_what_the_broker_says() {
    let once = deliver(&bytes(PYTHON), &Delivered { dead_letter_source: Some("q"), ..FRESH });
    let delivered = Delivered { sequence_number: 8, locked_until: None, ..FRESH };
    let again = deliver(&once, &delivered);
    let all = annotations(&again);
    let names: Vec<_> = all.keys().map(|name| format!("{name:?}")).collect();
    assert_eq!(all.len(), 5, "{names:?}");
    let sections = Sections::split(&again).unwrap();
    let number = sections.annotations().get("x-opt-sequence-number");
    assert_eq!(number, Some(ValueRef::Long(8)));
    let scheduled = sections.annotations().get("x-opt-scheduled-enqueue-time");
    assert_eq!(scheduled, Some(ValueRef::Timestamp(1_893_456_000_000)));
}

#[test]
fn times_to_live_are_told_twice() {
    let delivered = Delivered { expires_at: Some(61_000), ..FRESH };
    for message in [PYTHON, JAVASCRIPT_BARE, ""].map(bytes) {
        let properties = read(&deliver(&message, &delivered)).properties.unwrap();
        let ms = |time: Option<Timestamp>| time.map(Timestamp::into_inner);
        assert_eq!(ms(properties.absolute_expiry_time), Some(61_000));
        assert_eq!(ms(properties.creation_time), Some(1_000));
    }
}

#[test]
fn changes_are_merged_where_they_belong() {
    let change = |scope, name, value| Change { scope, name, value };
    let text = |text| Some(ValueRef::String(text));
    let changes = [
        change(Scope::User, "n", text("first")),
        change(Scope::User, "n", text("last")),
        change(Scope::User, "s", None),
        change(Scope::User, "DeadLetterReason", text("why")),
        change(Scope::System, "Label", text("relabelled")),
        change(Scope::System, "correlationid", None),
        change(Scope::System, "NoSuchProperty", text("nowhere")),
        change(Scope::Annotation, "x-opt-partition-key", text("p")),
    ];
    let out = deliver(&bytes(JAVASCRIPT), &Delivered { changes: &changes, ..FRESH });
    let sections = Sections::split(&out).unwrap();
    let user = sections.application_properties();
    assert_eq!(user.get("n"), text("last"));
    assert_eq!(user.get("s"), None);
    assert_eq!(user.get("DeadLetterReason"), text("why"));
    assert_eq!(user.get("big"), Some(ValueRef::Ulong(1 << 40)));
    assert_eq!(user.iter().count(), 7);
    assert_eq!(sections.properties().subject(), Some("relabelled"));
    assert_eq!(sections.properties().correlation_id(), None);
    assert_eq!(sections.properties().message_id().as_deref(), Some("m"));
    assert_eq!(sections.annotations().get("x-opt-partition-key"), text("p"));
    read(&out);

    let out = deliver(b"", &Delivered { changes: &changes[3..4], ..FRESH });
    assert_eq!(Sections::split(&out).unwrap().application_properties().iter().count(), 1);
}
