//! Queries that change nothing.

use barid_core::entity::{Entry, Part};
use barid_core::time::WallTime;

use super::world::{LOCK, World, defer, scheduled};

/// One locked, one deferred, one scheduled and two waiting messages of `a`, and one of `b` between
/// them.
fn mixed() -> World {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.send("b", "3");
    world.try_send(scheduled("a", "4", 900)).unwrap();
    world.send_all("a", &["5", "6"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    world.settle(&got[1], defer()).unwrap();
    world
}

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number).collect()
}

#[test]
fn a_peek_shows_all_in_order_whatever_they_wait_for() {
    let world = mixed();
    assert_eq!(numbers(&world.peek(Part::Main, 0, 9, None)), [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(&world.peek(Part::Main, 2, 3, None)), [2, 3, 4]);
    assert_eq!(numbers(&world.peek(Part::Main, 7, 9, None)), [0; 0]);
}

#[test]
fn a_peek_into_a_session_shows_its_own() {
    let world = mixed();
    assert_eq!(numbers(&world.peek(Part::Main, 0, 9, Some("a"))), [1, 2, 4, 5, 6]);
    assert_eq!(numbers(&world.peek(Part::Main, 2, 3, Some("a"))), [2, 4, 5]);
    assert_eq!(numbers(&world.peek(Part::Main, 0, 9, Some("b"))), [3]);
    assert_eq!(numbers(&world.peek(Part::Main, 0, 9, Some("c"))), [0; 0]);
    assert_eq!(numbers(&world.peek(Part::DeadLetter, 0, 9, Some("a"))), [0; 0]);
}

#[test]
fn a_peek_ends_when_enough_has_been_seen() {
    let world = mixed();
    for session in [None, Some("a")] {
        let mut seen = 0;
        world.entity.peek(Part::Main, 0, 9, session, |_| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2);
    }
}

#[test]
fn each_message_is_counted_once() {
    let world = mixed();
    let counts = world.entity.counts();
    assert_eq!((counts.active, counts.locked, counts.deferred, counts.scheduled), (3, 1, 1, 1));
    assert_eq!((counts.sessions, counts.bytes), (2, 6));
    assert_eq!(counts.oldest, Some(WallTime::from_millis(0)));
}

#[test]
fn a_session_tells_how_it_stands() {
    let mut world = mixed();
    world.later(5);
    world.set_state(1, Some(b"123")).unwrap();
    let details = world.entity.session_details("a").unwrap();
    assert_eq!((&*details.id, details.active, details.locked, details.set_aside), ("a", 2, 1, 2));
    assert_eq!(details.locked_until.unwrap().as_millis(), LOCK);
    let state = (details.state_size, details.state_updated_at);
    assert_eq!(state, (Some(3), Some(WallTime::from_millis(5))));
    assert_eq!(world.entity.session_details("b").unwrap().locked_until, None);
}

#[test]
fn sessions_with_active_messages_or_a_state_are_listed() {
    let mut world = mixed();
    world.accept(2, "locked only").unwrap();
    world.try_send(scheduled("scheduled only", "7", 900)).unwrap();
    world.accept(3, "state only").unwrap();
    world.set_state(3, Some(b"s")).unwrap();
    let mut all: Vec<_> = world.entity.sessions(None, 0, 9);
    all.sort();
    assert_eq!(all, ["a".into(), "b".into(), "state only".into()]);
    let mut paged: Vec<_> = (0..4).flat_map(|page| world.entity.sessions(None, page, 1)).collect();
    paged.sort();
    assert_eq!(paged, all);
}

#[test]
fn or_those_whose_state_was_set_after_a_time() {
    let mut world = World::with_sessions();
    world.send("no state", "1");
    for (receiver, session) in [(1, "a"), (2, "b"), (3, "c")] {
        world.later(receiver * 10);
        world.accept(receiver, session).unwrap();
        world.set_state(receiver, Some(b"s")).unwrap();
    }
    world.later(40);
    world.set_state(1, Some(b"t")).unwrap();
    let after = |at, skip, top| {
        let sessions = world.entity.sessions(Some(WallTime::from_millis(at)), skip, top);
        sessions.iter().map(|id| id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(after(0, 0, 9), ["b", "c", "a"]);
    assert_eq!(after(20, 0, 9), ["c", "a"]);
    assert_eq!(after(0, 1, 1), ["c"]);
    assert_eq!(after(40, 0, 9), [""; 0]);
}
