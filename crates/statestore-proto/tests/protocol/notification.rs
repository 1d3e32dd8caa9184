use proptest::collection::vec;
use proptest::prelude::*;
use statestore_proto::Notification;

const FORMS: [(Notification<'static>, &[u8]); 4] = [
    (
        Notification::Set(b"value"),
        b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$5\r\nvalue\r\n",
    ),
    (Notification::Set(b""), b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$0\r\n\r\n"),
    (
        Notification::Set(b"\r\n\0\xFF"),
        b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$4\r\n\r\n\0\xFF\r\n",
    ),
    (Notification::Delete, b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n"),
];

#[test]
fn every_form() {
    for (notification, payload) in FORMS {
        assert_eq!(Notification::decode(payload), Some(notification));
        let mut out = b"before".to_vec();
        notification.encode(&mut out);
        assert_eq!(out, [b"before", payload].concat());
    }
}

#[test]
fn what_is_no_notification() {
    for payload in [
        "",
        "*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n",
        "*2\r\n$6\r\nNOTIFY\r\n$7\r\nEXPIRED\r\n",
        "*2\r\n$6\r\nnotify\r\n$6\r\nDELETE\r\n",
        "*1\r\n$6\r\nNOTIFY\r\n",
        "*3\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n$0\r\n\r\n",
        "*4\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
        "*2\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n",
        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nvalue\r\n$1\r\na\r\n",
        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$-1\r\n",
        "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$18446744073709551615\r\n",
        "*4\r\n$6\r\nNOTICE\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\na\r\n",
    ] {
        assert_eq!(Notification::decode(payload.as_bytes()), None, "{payload:?}");
    }
}

#[test]
fn every_truncation_and_any_byte_more() {
    for (_, payload) in FORMS {
        for len in 0..payload.len() {
            assert_eq!(Notification::decode(&payload[..len]), None, "{payload:?} {len}");
        }
        for more in [&b"\0"[..], b"\r\n", payload] {
            assert_eq!(Notification::decode(&[payload, more].concat()), None, "{payload:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_value(value in vec(any::<u8>(), 0..100)) {
        let mut payload = Vec::new();
        Notification::Set(&value).encode(&mut payload);
        prop_assert_eq!(Notification::decode(&payload), Some(Notification::Set(&value)));
    }
}
