use proptest::prelude::*;
use statestore_proto::{DRIFT_MAX_MS, Hlc, NODE, Refusal, Version};

const NOW: u64 = 1_696_374_425_000;

fn hlc(wall: u64, counter: u32) -> Hlc<'static> {
    Hlc { wall, counter, node: "CLIENT" }
}

fn version(wall: u64, counter: u32) -> Version {
    Version { wall, counter }
}

#[test]
fn both_ways_of_writing_are_read_and_the_padded_one_is_written() {
    let padded = "001696374425000:00001:StateStore";
    assert_eq!(version(NOW, 1).to_string(), padded);
    assert_eq!(Hlc::parse(padded), Ok(version(NOW, 1).as_hlc()));
    assert_eq!(Hlc::parse("1696374425000:1:StateStore"), Ok(version(NOW, 1).as_hlc()));
    assert_eq!(Hlc::parse("000000001696374425000:000000001:CLIENT"), Ok(hlc(NOW, 1)));
    // Numbers with more digits than the padding.
    let long = "9223372036854775807:4294967295:CLIENT";
    assert_eq!(Hlc::parse(long), Ok(hlc(i64::MAX as u64, u32::MAX)));
    assert_eq!(hlc(i64::MAX as u64, u32::MAX).to_string(), long);
    assert_eq!(Hlc::parse("0:0:ü").map(|hlc| hlc.node), Ok("ü"));
    assert_eq!(NODE, "StateStore");
}

#[test]
fn malformed() {
    for text in [
        "",
        "1",
        "1:2",
        "1:2:",
        "1:2:a:b",
        "1:2::",
        ":2:a",
        "1::a",
        "::",
        "-1:2:a",
        "+1:2:a",
        "1:+2:a",
        "1:-2:a",
        " 1:2:a",
        "1: 2:a",
        "1 :2:a",
        "0x1:2:a",
        "1.5:2:a",
        "1e3:2:a",
        "one:2:a",
        "١:2:a",
        "9223372036854775808:0:a",
        "18446744073709551616:0:a",
        "1:4294967296:a",
        "1:99999999999999999999:a",
    ] {
        assert_eq!(Hlc::parse(text), Err(Refusal::MalformedTimestamp), "{text:?}");
    }
}

#[test]
fn ordered_by_wall_clock_counter_and_bytes_of_the_node() {
    let node = |node| Hlc { wall: 2, counter: 2, node };
    let ascending =
        [hlc(1, 9), hlc(2, 1), node("A"), node("AA"), node("B"), node("a"), node("ä"), hlc(3, 0)];
    assert!(ascending.is_sorted_by(|a, b| a < b));
}

#[test]
fn a_minute_ahead_and_not_more() {
    assert!(!hlc(NOW + DRIFT_MAX_MS, u32::MAX).is_in_future(NOW));
    assert!(hlc(NOW + DRIFT_MAX_MS + 1, 0).is_in_future(NOW));
    assert!(!hlc(0, 0).is_in_future(NOW));
    assert!(!hlc(i64::MAX as u64, 0).is_in_future(u64::MAX));
}

#[test]
fn the_rules_of_receiving() {
    let last = version(NOW, 5);
    for (now, received, expected) in [
        // The example of the protocol: with equal clocks, the result has the wall clock of the
        // request and the next counter.
        (NOW, Some(hlc(NOW, 0)), version(NOW, 6)),
        (NOW, Some(hlc(NOW, 9)), version(NOW, 10)),
        (NOW, Some(hlc(NOW, 5)), version(NOW, 6)),
        // The highest reading may be the last version, the request, or the store's clock.
        (NOW - 7, Some(hlc(NOW - 1, 99)), version(NOW, 6)),
        (NOW - 7, Some(hlc(NOW + 1, 99)), version(NOW + 1, 100)),
        (NOW, Some(hlc(NOW + 1, 0)), version(NOW + 1, 1)),
        (NOW + 1, Some(hlc(NOW + 1, 3)), version(NOW + 1, 4)),
        (NOW + 1, Some(hlc(NOW, 99)), version(NOW + 1, 0)),
        (NOW + 1, Some(hlc(0, 0)), version(NOW + 1, 0)),
        // Without a received reading: the clock of a deletion, or of a key that has expired.
        (NOW - 7, None, version(NOW, 6)),
        (NOW, None, version(NOW, 6)),
        (NOW + 1, None, version(NOW + 1, 0)),
    ] {
        assert_eq!(last.next(now, received), expected, "{now} {received:?}");
    }
    let first = Version::default().next(NOW, Some(hlc(NOW, 0)));
    assert_eq!(first.to_string(), "001696374425000:00001:StateStore");
}

#[test]
fn the_counter_carries_into_the_wall_clock() {
    let max = i32::MAX as u32 - 1;
    assert_eq!(version(NOW, max - 1).next(NOW, None), version(NOW, max));
    assert_eq!(version(NOW, max).next(NOW, None), version(NOW + 1, 0));
    for counter in [max, max + 1, u32::MAX] {
        let next = Version::default().next(NOW, Some(hlc(NOW, counter)));
        assert_eq!(next, version(NOW + 1, 0), "{counter}");
    }
    assert_eq!(version(NOW, 3).next(NOW, Some(hlc(NOW, u32::MAX))), version(NOW + 1, 0));
}

/// Readings from a few values near each other, and extreme values.
fn reading() -> impl Strategy<Value = (u64, u32)> {
    let counter = prop_oneof![0..4_u32, i32::MAX as u32 - 3..i32::MAX as u32 + 3, any::<u32>()];
    (prop_oneof![NOW - 3..NOW + 3, 0..i64::MAX as u64], counter)
}

proptest! {
    #[test]
    fn the_text_comes_back((wall, counter) in reading(), node in "[^:]{1,9}") {
        let hlc = Hlc { wall, counter, node: &node };
        for text in [hlc.to_string(), format!("{wall}:{counter}:{node}")] {
            prop_assert_eq!(Hlc::parse(&text), Ok(hlc));
        }
    }

    /// A version is greater than the last one and than the received reading, and is not before the
    /// clock. Its counter can be read by clients, and it is not further ahead than necessary.
    #[test]
    fn versions_only_grow(
        steps in prop::collection::vec((reading(), prop::option::of(reading())), 1..20)
    ) {
        let mut last = Version::default();
        for ((now, _), received) in steps {
            let received = received.map(|(wall, counter)| hlc(wall, counter));
            let next = last.next(now, received);
            prop_assert!(next > last);
            prop_assert!(next.wall >= now);
            prop_assert!(next.counter < i32::MAX as u32);
            let latest = received.map_or(0, |received| received.wall).max(now).max(last.wall);
            prop_assert!(next.wall <= latest + 1);
            if let Some(received) = received {
                let next = next.as_hlc();
                prop_assert!((next.wall, next.counter) > (received.wall, received.counter));
            }
            last = next;
        }
    }
}
