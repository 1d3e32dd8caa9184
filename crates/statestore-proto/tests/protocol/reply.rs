use proptest::collection::vec;
use proptest::prelude::*;
use statestore_proto::{Refusal, Reply};

fn forms() -> Vec<(Reply<'static>, &'static [u8])> {
    vec![
        (Reply::Ok, b"+OK\r\n"),
        (Reply::NotApplied, b":-1\r\n"),
        (Reply::Deleted, b":1\r\n"),
        (Reply::Nothing, b":0\r\n"),
        (Reply::Absent, b"$-1\r\n"),
        (Reply::Value(b"value5"), b"$6\r\nvalue5\r\n"),
        (Reply::Value(b""), b"$0\r\n\r\n"),
        (Reply::Value(b"\r\n-ERR \0"), b"$8\r\n\r\n-ERR \0\r\n"),
        (Reply::Page { keys: vec![], next: None }, b"*1\r\n*0\r\n"),
        (
            Reply::Page { keys: vec![b"key1", b"k\r\n"], next: None },
            b"*1\r\n*2\r\n$4\r\nkey1\r\n$3\r\nk\r\n\r\n",
        ),
        (Reply::Page { keys: vec![], next: Some(b"1;1;") }, b"*2\r\n*0\r\n$4\r\n1;1;\r\n"),
        (
            Reply::Page { keys: vec![b"a"], next: Some(b"\0") },
            b"*2\r\n*1\r\n$1\r\na\r\n$1\r\n\0\r\n",
        ),
    ]
}

#[test]
fn every_form() {
    for (reply, payload) in forms() {
        assert_eq!(Reply::decode(payload).as_ref(), Some(&reply));
        let mut out = b"before".to_vec();
        reply.encode(&mut out);
        assert_eq!(out, [b"before", payload].concat(), "{reply:?}");
    }
}

#[test]
fn every_refusal_in_the_words_that_clients_know() {
    use Refusal::*;
    let texts = [
        (
            TimestampInFuture,
            "the request timestamp is too far in the future; ensure that the client and broker \
             system clocks are synchronized",
        ),
        (FencingTokenRequired, "a fencing token is required for this request"),
        (
            FencingTokenInFuture,
            "the request fencing token timestamp is too far in the future; ensure that the client \
             and broker system clocks are synchronized",
        ),
        (
            FencingTokenTooOld,
            "the request fencing token is a lower version than the fencing token protecting the \
             resource",
        ),
        (QuotaExceeded, "the quota has been exceeded"),
        (Syntax, "syntax error"),
        (NotAuthorized, "not authorized"),
        (UnknownCommand, "unknown command"),
        (WrongNumberOfArguments, "wrong number of arguments"),
        (MissingTimestamp, "missing timestamp"),
        (MalformedTimestamp, "malformed timestamp"),
        (EmptyKey, "the key length is zero"),
    ];
    for (refusal, text) in texts {
        let mut payload = Vec::new();
        Reply::Refused(refusal).encode(&mut payload);
        assert_eq!(payload, format!("-ERR {text}\r\n").into_bytes());
        assert_eq!(Reply::decode(&payload), Some(Reply::Refused(refusal)));
        assert_eq!(refusal.to_string(), text);
    }
    for refusal in Refusal::ALL {
        assert!(texts.iter().any(|(known, _)| *known == refusal), "{refusal:?}");
    }
}

#[test]
fn what_is_no_reply() {
    for payload in [
        "",
        "OK\r\n",
        "+OK",
        "+OK\n",
        "+ok\r\n",
        "+OKAY\r\n",
        "-1\r\n",
        ":2\r\n",
        ":-1",
        ":01\r\n",
        "$-1",
        "$-2\r\n",
        "$1\r\nab\r\n",
        "$2\r\na\r\n",
        "$18446744073709551615\r\na\r\n",
        "-ERR\r\n",
        "-ERR \r\n",
        "-ERR: syntax error\r\n",
        "-ERR syntax error",
        "-ERR syntax error\n",
        "-ERR  syntax error\r\n",
        "-ERR Syntax error\r\n",
        "-ERR something else\r\n",
        "*0\r\n",
        "*3\r\n*0\r\n$1\r\na\r\n$1\r\na\r\n",
        "*1\r\n$1\r\na\r\n",
        "*1\r\n*1\r\n$-1\r\n",
        "*1\r\n*-1\r\n",
        "*1\r\n*1\r\n*0\r\n",
        "*2\r\n*0\r\n",
        "*2\r\n*0\r\n$-1\r\n",
        "*1\r\n*18446744073709551615\r\n",
        "*1\r\n*18446744073709551615\r\n$1\r\na\r\n",
    ] {
        assert_eq!(Reply::decode(payload.as_bytes()), None, "{payload:?}");
    }
}

#[test]
fn every_truncation_and_any_byte_more() {
    let refused = (Reply::Refused(Refusal::Syntax), &b"-ERR syntax error\r\n"[..]);
    for (_, payload) in forms().into_iter().chain([refused]) {
        for len in 0..payload.len() {
            assert_eq!(Reply::decode(&payload[..len]), None, "{payload:?} {len}");
        }
        for more in [&b"\0"[..], b"\r\n", payload] {
            assert_eq!(Reply::decode(&[payload, more].concat()), None, "{payload:?}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        keys in vec(vec(any::<u8>(), 0..20), 0..10),
        next in prop::option::of(vec(any::<u8>(), 0..20)),
    ) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for reply in [
            Reply::Value(&keys.concat()),
            Reply::Page { keys: keys.clone(), next: next.as_deref() },
        ] {
            let mut payload = Vec::new();
            reply.encode(&mut payload);
            prop_assert_eq!(Reply::decode(&payload), Some(reply));
        }
    }

    #[test]
    fn no_bytes_lead_to_a_panic(payload in vec(prop_oneof![
        Just(b'*'), Just(b'$'), Just(b'-'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>(),
    ], 0..60)) {
        let _ = Reply::decode(&payload);
    }
}
