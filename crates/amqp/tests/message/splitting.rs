//! Tests of splitting the messages of real clients.

use barid_amqp::message::{Field, Header, Malformed, Sections, ValueRef, id_text};

use super::{JAVASCRIPT, JAVASCRIPT_BARE, PYTHON, bytes};

#[test]
fn all_sections_of_python() {
    let message = bytes(PYTHON);
    let sections = Sections::split(&message).unwrap();
    assert_eq!(sections.header(), Header { ttl: Some(60_000), ..Header::default() });
    let scheduled = sections.annotations().get("x-opt-scheduled-enqueue-time");
    assert_eq!(scheduled, Some(ValueRef::Timestamp(1_893_456_000_000)));
    let properties = sections.properties();
    assert_eq!(properties.message_id().as_deref(), Some("m1"));
    assert_eq!(properties.to(), Some("t"));
    assert_eq!(properties.subject(), Some("lab"));
    assert_eq!(properties.reply_to(), Some("r"));
    assert_eq!(properties.correlation_id().as_deref(), Some("c"));
    assert_eq!(properties.value(Field::ContentType), ValueRef::Symbol("text/plain"));
    assert_eq!(properties.value(Field::ContentEncoding), ValueRef::Null);
    assert_eq!(properties.group_id(), Some("s1"));
    assert_eq!(properties.reply_to_group_id(), Some("rs"));
    let application: Vec<_> = sections.application_properties().iter().collect();
    assert_eq!(
        application,
        [
            ("n", ValueRef::Int(7)),
            ("f", ValueRef::Double(1.5)),
            ("s", ValueRef::String("x")),
            ("b", ValueRef::String("y")),
            ("t", ValueRef::Bool(true)),
            ("u", ValueRef::Uuid(5u128.to_be_bytes())),
            ("none", ValueRef::Null),
            ("d", ValueRef::Timestamp(1_767_225_600_000)),
        ]
    );
    assert_eq!(sections.body(), b"\x00\x53\x75\xa0\x05hello");
    assert_eq!(sections.payload().as_deref(), Some(&b"hello"[..]));
}

#[test]
fn all_sections_of_javascript() {
    let message = bytes(JAVASCRIPT);
    let sections = Sections::split(&message).unwrap();
    assert_eq!(sections.header().ttl, Some(60_000));
    let annotation = |name| sections.annotations().get(name);
    assert_eq!(annotation("x-opt-partition-key"), Some(ValueRef::String("s1")));
    assert_eq!(annotation("x-opt-partition"), None);
    assert_eq!(sections.properties().group_id(), Some("s1"));
    let property = |name| sections.application_properties().get(name).unwrap();
    assert_eq!(property("n"), ValueRef::Uint(7));
    assert_eq!(property("n").integer(), Some(7));
    assert_eq!(property("big"), ValueRef::Ulong(1 << 40));
    assert_eq!(property("neg"), ValueRef::Int(-1));
    assert_eq!(sections.payload().as_deref(), Some(&b"hello"[..]));
}

#[test]
fn ids_of_all_types_as_text() {
    let text = |id: ValueRef<'_>| id_text(id).map(String::from);
    let uuid = ValueRef::Uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677u128.to_be_bytes());
    assert_eq!(text(uuid).as_deref(), Some("01234567-89ab-cdef-0011-223344556677"));
    assert_eq!(text(ValueRef::Ulong(7)).as_deref(), Some("7"));
    assert_eq!(text(ValueRef::Binary(b"\x00\xff")).as_deref(), Some("00ff"));
    assert_eq!(text(ValueRef::String("id")).as_deref(), Some("id"));
    assert_eq!(text(ValueRef::Null), None);
}

#[test]
fn descriptors_may_be_long_or_symbols() {
    let long = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xc0\x04\x01\xa1\x01m";
    let symbol = b"\x00\xa3\x14amqp:properties:list\xc0\x04\x01\xa1\x01m";
    for message in [&long[..], symbol] {
        let sections = Sections::split(message).unwrap();
        assert_eq!(sections.properties().message_id().as_deref(), Some("m"));
    }
}

#[test]
fn bodies_of_all_kinds_are_kept_with_their_footer() {
    let data = b"\x00\x53\x75\xa0\x02ab";
    let more = b"\x00\x53\x75\xb0\x00\x00\x00\x01c";
    let footer = b"\x00\x53\x78\xc1\x01\x00";
    let sequence = b"\x00\x53\x76\xc0\x03\x01\x52\x01";
    let value = b"\x00\x53\x77\xa1\x02hi";
    let body = |parts: &[&[u8]]| {
        let message = parts.concat();
        let sections = Sections::split(&message).unwrap();
        assert_eq!(sections.body(), message);
        sections.payload().map(|payload| payload.into_owned())
    };
    assert_eq!(body(&[data, more, footer]).as_deref(), Some(&b"abc"[..]));
    assert_eq!(body(&[value, footer]).as_deref(), Some(&b"hi"[..]));
    assert_eq!(body(&[sequence, sequence]), None);
    assert_eq!(body(&[]).as_deref(), Some(&b""[..]));
}

#[test]
fn sections_stand_in_any_order() {
    let header = b"\x00\x53\x70\xc0\x02\x01\x41";
    let delivery = b"\x00\x53\x71\xc1\x06\x02\xa3\x01d\x54\x01";
    let message = b"\x00\x53\x72\xc1\x06\x02\xa3\x01m\x54\x02";
    let properties = b"\x00\x53\x73\xc0\x04\x01\xa1\x01i";
    let application = b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x54\x03";
    let data = b"\x00\x53\x75\xa0\x01x";
    let footer = b"\x00\x53\x78\xc1\x06\x02\xa3\x01f\x54\x04";
    let parts: [&[u8]; 8] =
        [header, delivery, message, properties, application, data, data, footer];
    let canonical = parts.concat();
    assert!(Sections::split(&canonical).unwrap().in_order());
    // pyamqp writes the delivery annotations last.
    for order in [
        [0, 2, 3, 4, 5, 6, 7, 1],
        [0, 2, 3, 4, 5, 6, 1, 7],
        [5, 6, 7, 4, 3, 2, 1, 0],
        [7, 5, 6, 0, 1, 2, 3, 4],
        [1, 0, 2, 3, 4, 5, 6, 7],
    ] {
        let written = order.map(|part| parts[part]).concat();
        let sections = Sections::split(&written).unwrap();
        assert!(!sections.in_order(), "{order:?}");
        assert_eq!(sections.payload().as_deref(), Some(&b"xx"[..]), "{order:?}");
        assert_eq!(sections.delivery_annotations().get("d"), Some(ValueRef::Int(1)));
        let mut out = Vec::new();
        sections.reordered(&mut out);
        assert_eq!(out, canonical, "{order:?}");
    }
}

#[test]
fn sections_that_repeat_or_part_the_body_are_refused() {
    let header = b"\x00\x53\x70\x45";
    let properties = b"\x00\x53\x73\x45";
    let data = b"\x00\x53\x75\xa0\x00";
    let value = b"\x00\x53\x77\x40";
    let footer = b"\x00\x53\x78\xc1\x01\x00";
    let why = |parts: &[&[u8]]| Sections::split(&parts.concat()).unwrap_err();
    assert_eq!(why(&[header, properties, header]), Malformed::Order);
    assert_eq!(why(&[header, header]), Malformed::Order);
    assert_eq!(why(&[data, properties, data]), Malformed::Order);
    assert_eq!(why(&[data, value]), Malformed::Order);
    assert_eq!(why(&[value, value]), Malformed::Order);
    assert_eq!(why(&[data, footer, data]), Malformed::Order);
    assert_eq!(why(&[footer, footer]), Malformed::Order);
    assert_eq!(why(&[b"\x00\x53\x79\x45"]), Malformed::NotASection);
    assert_eq!(why(&[b"\x45"]), Malformed::Descriptor);
    assert_eq!(why(&[b"\x00\x53\x70\xa0\x00"]), Malformed::Section);
    assert_eq!(why(&[b"\x00\x53\x75\xa1\x00"]), Malformed::Section);
}

#[test]
fn a_message_id_is_added_and_nothing_else_changes() {
    let with_id = |message: &[u8]| {
        let sections = Sections::split(message).unwrap();
        assert!(!sections.has_message_id());
        let mut out = Vec::new();
        sections.with_message_id("guid", &mut out);
        out
    };
    let (before, after) = (bytes(JAVASCRIPT_BARE), with_id(&bytes(JAVASCRIPT_BARE)));
    let (before, after) = (Sections::split(&before).unwrap(), Sections::split(&after).unwrap());
    assert_eq!(after.properties().message_id().as_deref(), Some("guid"));
    assert_eq!(after.properties().group_id(), before.properties().group_id());
    assert_eq!(after.body(), before.body());

    let mut rich = bytes(PYTHON);
    let id = rich.windows(4).position(|window| window == b"\xa1\x02m1").unwrap();
    rich.splice(id..id + 4, [0x40]);
    // The size of the list stands 2 bytes before the message id, followed by the count.
    rich[id - 2] -= 3;
    let added = with_id(&rich);
    let (mut expected, found) = (super::read(&rich), super::read(&added));
    expected.properties.as_mut().unwrap().message_id = Some("guid".to_owned().into());
    assert_eq!(found, expected);

    let bodiless = with_id(b"");
    let sections = Sections::split(&bodiless).unwrap();
    assert_eq!(sections.properties().message_id().as_deref(), Some("guid"));
}
