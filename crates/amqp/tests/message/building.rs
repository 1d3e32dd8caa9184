//! Tests of messages that the broker creates.

use barid_amqp::message::{Builder, Field, Sections, ValueRef, Writer};
use fe2o3_amqp_types::primitives::SimpleValue;
use proptest::prelude::*;
use serde_amqp::Value;

use super::{FRESH, deliver, read};

#[test]
fn all_that_a_message_can_have() {
    let mut out = Vec::new();
    Builder::new()
        .durable(true)
        .ttl(5_000)
        .annotation("x-opt-mqtt-topic", ValueRef::String("a/b"))
        .property(Field::MessageId, ValueRef::String("id"))
        .property(Field::GroupId, ValueRef::String("session"))
        .application_property("key", ValueRef::Long(-7))
        .data(b"body", &mut out);
    let message = read(&out);
    let header = message.header.unwrap();
    assert!(header.durable);
    assert_eq!(header.ttl, Some(5_000));
    let properties = message.properties.unwrap();
    assert_eq!(properties.group_id.as_deref(), Some("session"));
    assert_eq!(message.application_properties.unwrap().0.get("key"), Some(&SimpleValue::Long(-7)));
    assert_eq!(Sections::split(&out).unwrap().payload().as_deref(), Some(&b"body"[..]));
}

#[test]
fn nothing_but_a_body() {
    let mut out = Vec::new();
    Builder::new().data(b"", &mut out);
    assert_eq!(out, b"\x00\x53\x75\xa0\x00");
}

fn values() -> impl Strategy<Value = Owned> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Owned::Long),
        any::<u32>().prop_map(Owned::Uint),
        any::<i32>().prop_map(Owned::Int),
        any::<u64>().prop_map(Owned::Ulong),
        any::<bool>().prop_map(Owned::Bool),
        any::<f64>().prop_filter("equal to itself", |n| !n.is_nan()).prop_map(Owned::Double),
        any::<i64>().prop_map(Owned::Timestamp),
        any::<[u8; 16]>().prop_map(Owned::Uuid),
        ".{0,300}".prop_map(Owned::String),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Owned::Binary),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Owned::List),
            prop::collection::btree_map("[a-z]{1,9}", inner, 0..6).prop_map(Owned::Map),
            prop::collection::vec(any::<i64>(), 1..6).prop_map(Owned::Longs),
        ]
    })
}

#[derive(Clone, Debug)]
enum Owned {
    Long(i64),
    Uint(u32),
    Int(i32),
    Ulong(u64),
    Bool(bool),
    Double(f64),
    Timestamp(i64),
    Uuid([u8; 16]),
    String(String),
    Binary(Vec<u8>),
    List(Vec<Owned>),
    Map(std::collections::BTreeMap<String, Owned>),
    Longs(Vec<i64>),
}

impl Owned {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Owned::Long(number) => writer.value(ValueRef::Long(*number)),
            Owned::Uint(number) => writer.value(ValueRef::Uint(*number)),
            Owned::Int(number) => writer.value(ValueRef::Int(*number)),
            Owned::Ulong(number) => writer.value(ValueRef::Ulong(*number)),
            Owned::Bool(is_true) => writer.value(ValueRef::Bool(*is_true)),
            Owned::Double(number) => writer.value(ValueRef::Double(*number)),
            Owned::Timestamp(ms) => writer.value(ValueRef::Timestamp(*ms)),
            Owned::Uuid(uuid) => writer.value(ValueRef::Uuid(*uuid)),
            Owned::String(text) => writer.value(ValueRef::String(text)),
            Owned::Binary(bytes) => writer.value(ValueRef::Binary(bytes)),
            Owned::List(all) => writer.list(|list| all.iter().for_each(|one| one.write(list))),
            Owned::Map(all) => writer.map(|map| {
                for (key, value) in all {
                    map.value(ValueRef::String(key));
                    value.write(map);
                }
            }),
            Owned::Longs(all) => writer.longs(all.iter().copied()),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values()) {
        let mut out = Vec::new();
        value.write(&mut Writer::new(&mut out));
        // The other implementation reads the value, …
        let theirs: Value = serde_amqp::from_slice(&out).unwrap();
        // … this crate reads what the other writes, …
        let back = serde_amqp::to_vec(&theirs).unwrap();
        let mut again = Vec::new();
        Writer::new(&mut again).value(ValueRef::parse(&back).unwrap());
        prop_assert_eq!(&serde_amqp::from_slice::<Value>(&again).unwrap(), &theirs);
        // … and the value passes through as an application property of a message.
        let mut message = Vec::new();
        Builder::new()
            .application_property("key", ValueRef::parse(&out).unwrap())
            .data(b"body", &mut message);
        let delivered = deliver(&message, &FRESH);
        let sections = Sections::split(&delivered).unwrap();
        prop_assert_eq!(sections.application_properties().get("key"), Some(ValueRef::parse(&out).unwrap()));
        let payload = sections.payload();
        prop_assert_eq!(payload.as_deref(), Some(&b"body"[..]));
    }
}
