//! Tests of batches: many messages in one.

use barid_amqp::message::{Malformed, Sections, batch};

use super::bytes;

const PYTHON: &str = "005373c0130da10131404040404040404040a10273314040005375a020005373c0130da10131404040404040404040a10273314040005375a0036f6e65005375a020005373c0130da10132404040404040404040a10273324040005375a00374776f";
const JAVASCRIPT: &str = "005373d0000000110000000b40404040404040404040a10161005375a02300537045005373d0000000110000000b40404040404040404040a10161005375a00131005375a02300537045005373d0000000110000000b40404040404040404040a10162005375a00132";

#[test]
fn each_data_section_is_a_message() {
    let sessions = |envelope: &str| {
        let envelope = bytes(envelope);
        let session = |message: Result<&[u8], Malformed>| {
            let sections = Sections::split(message.unwrap()).unwrap();
            let payload = String::from_utf8(sections.payload().unwrap().into_owned()).unwrap();
            (sections.properties().group_id().unwrap().to_owned(), payload)
        };
        batch(&envelope).map(session).collect::<Vec<_>>()
    };
    let pair = |session: &str, body: &str| (session.to_owned(), body.to_owned());
    assert_eq!(sessions(PYTHON), [pair("s1", "one"), pair("s2", "two")]);
    assert_eq!(sessions(JAVASCRIPT), [pair("a", "1"), pair("b", "2")]);
    assert_eq!(sessions(""), []);
}

#[test]
fn what_is_cut_off_ends_it_with_an_error() {
    let envelope = bytes(PYTHON);
    let parts: Vec<_> = batch(&envelope[..envelope.len() - 1]).collect();
    assert!(matches!(parts[..], [Ok(_), Err(Malformed::Truncated)]), "{parts:?}");
    let value: Vec<_> = batch(b"\x00\x53\x77\x40").collect();
    assert_eq!(value, [Err(Malformed::Section)]);
}
