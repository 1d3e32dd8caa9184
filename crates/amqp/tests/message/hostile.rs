//! Tests of bytes that are not messages.

use barid_amqp::message::{
    Change, Delivered, Malformed, Request, Scope, Sections, ValueRef, batch,
};
use proptest::prelude::*;

use super::{FRESH, JAVASCRIPT, PYTHON, bytes, deliver, read};

/// Calls everything that can be asked of a message.
fn exercise(message: &[u8]) {
    for inner in batch(message).take(100).flatten() {
        let _ = Sections::split(inner);
    }
    if let Ok(request) = Request::parse(message) {
        request.body().items().map(|items| items.take(5_000).count());
        request.argument("x");
    }
    let Ok(sections) = Sections::split(message) else { return };
    sections.header();
    sections.properties().message_id();
    sections.payload();
    sections.annotations().iter().count();
    let changes = [Change { scope: Scope::User, name: "n", value: Some(ValueRef::Int(1)) }];
    let out = deliver(message, &Delivered { changes: &changes, expires_at: Some(5), ..FRESH });
    let again = Sections::split(&out).expect("what is delivered is a message");
    assert_eq!(again.body(), sections.body());
    let mut with_id = Vec::new();
    sections.with_message_id("id", &mut with_id);
    let with_id = Sections::split(&with_id).expect("what gets an id is a message");
    assert_eq!(with_id.properties().message_id().as_deref(), Some("id"));
}

#[test]
fn declared_sizes_and_counts_are_not_believed() {
    let split = |message: &[u8]| Sections::split(message).unwrap_err();
    // A size beyond the end, a count beyond the size, a size beyond the count.
    assert_eq!(split(b"\x00\x53\x74\xd1\xff\xff\xff\xff\xff\xff\xff\xff"), Malformed::Truncated);
    assert_eq!(split(b"\x00\x53\x74\xd1\x00\x00\x00\x04\xff\xff\xff\xfe"), Malformed::Truncated);
    assert_eq!(split(b"\x00\x53\x74\xc1\x03\x00\x40\x40"), Malformed::Length);
    assert_eq!(split(b"\x00\x53\x74\xc1\x02\x01\x40"), Malformed::Length);
    assert_eq!(split(b"\x00\x53\x74\xc1\x00"), Malformed::Length);
    // Four billion values that take no bytes at all.
    let nulls = b"\x00\x53\x72\xd1\x00\x00\x00\x10\x00\x00\x00\x02\xa3\x01k\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40";
    let mut nulls = nulls.to_vec();
    nulls[7] = (nulls.len() - 8) as u8;
    assert_eq!(split(&nulls), Malformed::Length);
    assert_eq!(split(b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"), Malformed::Text);
    assert_eq!(split(b"\x00\x53\x73\xc0\x02\x01\x3f"), Malformed::Type(0x3f));
    assert_eq!(split(b"\x00\x53\x73\xc0\x02\x01\x46"), Malformed::Type(0x46));
}

#[test]
fn nesting_has_an_end() {
    let mut list = vec![0x45];
    for _ in 0..40 {
        let size = (list.len() + 4) as u32;
        let mut outer = vec![0xd0];
        outer.extend_from_slice(&size.to_be_bytes());
        outer.extend_from_slice(&1u32.to_be_bytes());
        outer.append(&mut list);
        list = outer;
    }
    let properties = [b"\x00\x53\x73", &list[..]].concat();
    assert_eq!(Sections::split(&properties).unwrap_err(), Malformed::Depth);
    let value = [b"\x00\x53\x77", &list[..]].concat();
    assert_eq!(Request::parse(&value).unwrap_err(), Malformed::Depth);
    // A body is passed on without being checked.
    Sections::split(&value).unwrap();
    let described = vec![0x00; 1 << 20];
    assert_eq!(Sections::split(&described).unwrap_err(), Malformed::Depth);
    exercise(&described);
}

#[test]
fn every_prefix_is_a_message_or_refused() {
    for message in [PYTHON, JAVASCRIPT].map(bytes) {
        read(&message);
        for end in 0..message.len() {
            exercise(&message[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes(message in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&message);
    }

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), python: bool) {
        let mut message = bytes(if python { PYTHON } else { JAVASCRIPT });
        for (index, byte) in changes {
            let at = index.index(message.len());
            message[at] = byte;
        }
        exercise(&message);
    }
}
