use std::num::NonZeroU64;

use proptest::collection::vec;
use proptest::prelude::*;
use statestore_proto::{Command, Condition, PATTERN_MAX, Refusal, Verb};

fn set<'a>(key: &'a [u8], value: &'a [u8], condition: Condition, ttl: u64) -> Command<'a> {
    Command::Set { key, value, condition, ttl: NonZeroU64::new(ttl) }
}

/// Every form of every command, with its encoding.
fn forms() -> Vec<(Command<'static>, &'static [u8])> {
    use Condition::*;
    vec![
        (set(b"K", b"V1", Always, 0), b"*3\r\n$3\r\nSET\r\n$1\r\nK\r\n$2\r\nV1\r\n"),
        (set(b"K", b"", Always, 0), b"*3\r\n$3\r\nSET\r\n$1\r\nK\r\n$0\r\n\r\n"),
        (set(b"K", b"V", IfAbsent, 0), b"*4\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$2\r\nNX\r\n"),
        (
            set(b"K", b"V", IfAbsentOrEqual, 0),
            b"*4\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$3\r\nNEX\r\n",
        ),
        (
            set(b"K", b"V", Always, 1),
            b"*5\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$2\r\nPX\r\n$1\r\n1\r\n",
        ),
        (
            set(b"K", b"V", IfAbsent, 10_000),
            b"*6\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
        ),
        (
            set(b"K", b"V", IfAbsentOrEqual, u64::MAX),
            b"*6\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$3\r\nNEX\r\n$2\r\nPX\r\n$20\r\n\
              18446744073709551615\r\n",
        ),
        (Command::Get { key: b"SOMEKEY" }, b"*2\r\n$3\r\nGET\r\n$7\r\nSOMEKEY\r\n"),
        (Command::Get { key: b"\r\n\0\xFF" }, b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0\xFF\r\n"),
        (Command::Del { key: b"K" }, b"*2\r\n$3\r\nDEL\r\n$1\r\nK\r\n"),
        (
            Command::VDel { key: b"K", value: b"$1\r\n" },
            b"*3\r\n$4\r\nVDEL\r\n$1\r\nK\r\n$4\r\n$1\r\n\r\n",
        ),
        (Command::KeyNotify { key: b"K", stop: false }, b"*2\r\n$9\r\nKEYNOTIFY\r\n$1\r\nK\r\n"),
        (
            Command::KeyNotify { key: b"K", stop: true },
            b"*3\r\n$9\r\nKEYNOTIFY\r\n$1\r\nK\r\n$4\r\nSTOP\r\n",
        ),
        (Command::Scan { pattern: b"a*", token: None }, b"*2\r\n$4\r\nSCAN\r\n$2\r\na*\r\n"),
        (
            Command::Scan { pattern: b"*", token: Some(b"1;1;") },
            b"*3\r\n$4\r\nSCAN\r\n$1\r\n*\r\n$4\r\n1;1;\r\n",
        ),
    ]
}

#[test]
fn every_form() {
    for (command, payload) in forms() {
        assert_eq!(Command::decode(payload), Ok(command));
        let mut out = b"before".to_vec();
        command.encode(&mut out);
        assert_eq!(out, [b"before", payload].concat(), "{command:?}");
    }
    for verb in Verb::ALL {
        assert!(forms().iter().any(|(command, _)| command.verb() == verb), "{verb}");
    }
}

#[test]
fn all_but_scan_are_about_one_key() {
    for (command, _) in forms() {
        assert_eq!(command.key().is_none(), command.verb() == Verb::Scan, "{command:?}");
    }
    assert_eq!(Command::VDel { key: b"K", value: b"V" }.key(), Some(&b"K"[..]));
}

/// Encodes an array of bulk strings.
fn array(elements: &[&str]) -> Vec<u8> {
    let mut payload = format!("*{}\r\n", elements.len());
    for element in elements {
        payload += &format!("${}\r\n{element}\r\n", element.len());
    }
    payload.into_bytes()
}

#[test]
fn other_ways_of_writing_it() {
    for (elements, expected) in [
        (&["SET", "K", "V", "PX", "5", "NX"][..], set(b"K", b"V", Condition::IfAbsent, 5)),
        (&["SET", "K", "V", "PX", "5", "NEX"], set(b"K", b"V", Condition::IfAbsentOrEqual, 5)),
        (&["SET", "K", "V", "PX", "007"], set(b"K", b"V", Condition::Always, 7)),
        (&["SET", "K", "NX", "NX"], set(b"K", b"NX", Condition::IfAbsent, 0)),
        (&["KEYNOTIFY", "K", "GET"], Command::KeyNotify { key: b"K", stop: false }),
        (&["SCAN", ""], Command::Scan { pattern: b"", token: None }),
        (&["SCAN", "*", ""], Command::Scan { pattern: b"*", token: Some(b"") }),
    ] {
        assert_eq!(Command::decode(&array(elements)), Ok(expected), "{elements:?}");
    }
    let zeros = b"*002\r\n$03\r\nGET\r\n$0001\r\nK\r\n";
    assert_eq!(Command::decode(zeros), Ok(Command::Get { key: b"K" }));
}

#[test]
fn every_error_in_its_order() {
    use Refusal::*;
    let too_many: Vec<&str> = ["SET"].into_iter().chain(vec!["K"; 10_000]).collect();
    for (elements, expected) in [
        (&[][..], Syntax),
        (&[""], UnknownCommand),
        (&["get", "K"], UnknownCommand),
        (&["Set", "K", "V"], UnknownCommand),
        (&["MGET", "K"], UnknownCommand),
        (&["GETS", "K"], UnknownCommand),
        (&["PING"], UnknownCommand),
        (&["PING", ""], UnknownCommand),
        (&["GET"], WrongNumberOfArguments),
        (&["GET", "K", "V"], WrongNumberOfArguments),
        (&["GET", "", "V"], WrongNumberOfArguments),
        (&["DEL"], WrongNumberOfArguments),
        (&["DEL", "K", "V"], WrongNumberOfArguments),
        (&["VDEL", "K"], WrongNumberOfArguments),
        (&["VDEL", "K", "V", "V"], WrongNumberOfArguments),
        (&["KEYNOTIFY"], WrongNumberOfArguments),
        (&["KEYNOTIFY", "K", "STOP", "STOP"], WrongNumberOfArguments),
        (&["SCAN"], WrongNumberOfArguments),
        (&["SCAN", "*", "t", "t"], WrongNumberOfArguments),
        (&["SET"], WrongNumberOfArguments),
        (&["SET", "K"], WrongNumberOfArguments),
        (&["SET", ""], WrongNumberOfArguments),
        (&["SET", "K", "V", "NX", "PX", "1", "NX"], WrongNumberOfArguments),
        (&too_many, WrongNumberOfArguments),
        (&["GET", ""], EmptyKey),
        (&["DEL", ""], EmptyKey),
        (&["VDEL", "", "V"], EmptyKey),
        (&["KEYNOTIFY", ""], EmptyKey),
        (&["KEYNOTIFY", "", "nonsense"], EmptyKey),
        (&["SET", "", "V"], EmptyKey),
        (&["SET", "", "V", "nonsense"], EmptyKey),
        (&["SET", "K", "V", "nx"], Syntax),
        (&["SET", "K", "V", ""], Syntax),
        (&["SET", "K", "V", "XX"], Syntax),
        (&["SET", "K", "V", "NX", "NX"], Syntax),
        (&["SET", "K", "V", "NX", "NEX"], Syntax),
        (&["SET", "K", "V", "NEX", "NX"], Syntax),
        (&["SET", "K", "V", "NEX", "V"], Syntax),
        (&["SET", "K", "V", "PX"], Syntax),
        (&["SET", "K", "V", "NX", "PX"], Syntax),
        (&["SET", "K", "V", "PX", "NX"], Syntax),
        (&["SET", "K", "V", "px", "1"], Syntax),
        (&["SET", "K", "V", "PX", ""], Syntax),
        (&["SET", "K", "V", "PX", "0"], Syntax),
        (&["SET", "K", "V", "PX", "000"], Syntax),
        (&["SET", "K", "V", "PX", "-1"], Syntax),
        (&["SET", "K", "V", "PX", "+1"], Syntax),
        (&["SET", "K", "V", "PX", "1.5"], Syntax),
        (&["SET", "K", "V", "PX", " 1"], Syntax),
        (&["SET", "K", "V", "PX", "1s"], Syntax),
        (&["SET", "K", "V", "PX", "18446744073709551616"], Syntax),
        (&["SET", "K", "V", "PX", "1", "PX"], Syntax),
        (&["KEYNOTIFY", "K", "stop"], Syntax),
        (&["KEYNOTIFY", "K", ""], Syntax),
    ] {
        assert_eq!(Command::decode(&array(elements)), Err(expected), "{elements:?}");
    }
}

#[test]
fn patterns_have_an_end_and_keys_have_none() {
    let longest = "*".repeat(PATTERN_MAX);
    let command = Command::Scan { pattern: longest.as_bytes(), token: None };
    assert_eq!(Command::decode(&array(&["SCAN", &longest])), Ok(command));
    let longer = longest + "*";
    assert_eq!(Command::decode(&array(&["SCAN", &longer])), Err(Refusal::Syntax));
    let command = Command::Get { key: longer.as_bytes() };
    assert_eq!(Command::decode(&array(&["GET", &longer])), Ok(command));
}

#[test]
fn what_is_no_array_of_bulk_strings() {
    for payload in [
        "",
        "\r\n",
        "GET K\r\n",
        "GET\r\nK\r\n",
        "*2\n$3\nGET\n$1\nK\n",
        "*2\r\n+GET\r\n$1\r\nK\r\n",
        "*2\r\n:1\r\n$1\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n*1\r\n$1\r\nK\r\n",
        "*-1\r\n",
        "*2\r\n$3\r\nGET\r\n$-1\r\n",
        "*+2\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        " *2\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*2 \r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$2\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$0\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$1\r\nK\n\n",
        "*2\r\n$3\r\nGET\r\n$1\r\nK\r\r",
        "*2\r\n$3\r\nGET\r\n$\r\nK\r\n",
        "*2\r\n$three\r\nGET\r\n$1\r\nK\r\n",
        // Declared lengths that exceed the payload, or do not fit into an integer.
        "*3\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*1\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*18446744073709551615\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*18446744073709551618\r\n$3\r\nGET\r\n$1\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$18446744073709551615\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$18446744073709551614\r\nK\r\n",
        "*2\r\n$3\r\nGET\r\n$18446744073709551617\r\nK\r\n",
        "*2\r\n$9223372036854775807\r\nGET\r\n$1\r\nK\r\n",
        // The array is checked before the verb.
        "*2\r\n$4\r\nPING\r\n$1\r\nK",
        "*0\r\n\r\n",
    ] {
        assert_eq!(Command::decode(payload.as_bytes()), Err(Refusal::Syntax), "{payload:?}");
    }
}

#[test]
fn every_truncation_and_any_byte_more() {
    for (_, payload) in forms() {
        for len in 0..payload.len() {
            assert_eq!(Command::decode(&payload[..len]), Err(Refusal::Syntax), "{len}");
        }
        for more in [&b"\0"[..], b"\n", b"\r\n", b"$0\r\n\r\n", payload] {
            let longer = [payload, more].concat();
            assert_eq!(Command::decode(&longer), Err(Refusal::Syntax), "{longer:?}");
        }
    }
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfAbsentOrEqual)
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        verb in 0..Verb::ALL.len(),
        key in vec(any::<u8>(), 1..40),
        value in vec(any::<u8>(), 0..40),
        condition in condition(),
        ttl in any::<u64>(),
        flag in any::<bool>(),
    ) {
        let (key, value) = (&key[..], &value[..]);
        let command = match Verb::ALL[verb] {
            Verb::Set => set(key, value, condition, ttl),
            Verb::Get => Command::Get { key },
            Verb::Del => Command::Del { key },
            Verb::VDel => Command::VDel { key, value },
            Verb::KeyNotify => Command::KeyNotify { key, stop: flag },
            Verb::Scan => Command::Scan { pattern: key, token: flag.then_some(value) },
        };
        let mut payload = Vec::new();
        command.encode(&mut payload);
        prop_assert_eq!(Command::decode(&payload), Ok(command));
    }

    /// Changing any byte, which may be part of a length or an option, does not lead to a wrong
    /// command. If the bytes can still be decoded, the command is encoded again to the same bytes,
    /// except for leading zeros and the order of options.
    #[test]
    fn a_byte_changed(form in 0..forms().len(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut payload = forms()[form].1.to_vec();
        let at = at.index(payload.len());
        payload[at] = byte;
        if let Ok(command) = Command::decode(&payload) {
            let mut again = Vec::new();
            command.encode(&mut again);
            prop_assert!(again.len() <= payload.len());
            prop_assert_eq!(Command::decode(&again), Ok(command));
        }
    }

    #[test]
    fn no_bytes_lead_to_a_panic(payload in vec(prop_oneof![
        Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>(),
    ], 0..60)) {
        let _ = Command::decode(&payload);
    }
}
