//! Accepting of sessions: which session a receiver gets, and when.

use barid_core::entity::{Accept, Mode, Part, ReceiverId, Refusal};
use barid_core::time::WallTime;

use super::store::Told;
use super::world::{LOCK, World, defer, properties, scheduled, texts};

fn granted(receiver: u64, session: &str, until: u64) -> Told {
    Told::Granted(ReceiverId(receiver), session.into(), WallTime::from_millis(until))
}

#[test]
fn a_session_that_was_never_seen_can_be_accepted() {
    let mut world = World::with_sessions();
    world.accept(1, "reply").unwrap();
    assert!(world.take(1, 1).is_empty());
    world.send("reply", "1");
    assert_eq!(world.told(), [Told::Ready(ReceiverId(1))]);
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
}

#[test]
fn the_empty_id_can_be_accepted() {
    assert!(World::with_sessions().accept(1, "").is_ok());
}

#[test]
fn a_session_is_there_as_long_as_anything_belongs_to_it() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    assert_eq!(world.entity.counts().sessions, 1, "a lock");
    world.close(1);
    assert_eq!(world.entity.counts().sessions, 0);
    world.send("a", "1");
    world.accept(2, "a").unwrap();
    let got = world.take(2, 1);
    world.set_state(2, Some(b"s")).unwrap();
    world.complete(&got[0]);
    world.close(2);
    assert_eq!(world.entity.counts().sessions, 1, "a state");
    world.accept(3, "a").unwrap();
    world.set_state(3, None).unwrap();
    world.close(3);
    assert_eq!(world.entity.counts().sessions, 0);
    assert_eq!(world.entity.session_details("a"), None);
}

#[test]
fn the_next_session_is_the_free_one_with_the_lowest_number() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.send("b", "2");
    world.send("a", "3");
    world.send("c", "4");
    assert_eq!(world.accept_next(1, 500).as_deref(), Some("a"));
    assert_eq!(world.accept_next(2, 500).as_deref(), Some("b"));
    let got = world.take(1, 1);
    world.complete(&got[0]);
    world.close(1);
    // The rest of `a` still comes before `c`.
    assert_eq!(world.accept_next(3, 500).as_deref(), Some("a"));
    assert_eq!(world.accept_next(4, 500).as_deref(), Some("c"));
    assert_eq!(world.accept_next(5, 500), None);
}

#[test]
fn who_waits_is_served_first_come_first_served() {
    let mut world = World::with_sessions();
    assert_eq!(world.accept_next(1, 500), None);
    assert_eq!(world.accept_next(2, 400), None);
    world.send("a", "1");
    assert_eq!(world.told(), [granted(1, "a", LOCK)]);
    world.send("a", "2");
    assert_eq!(world.told(), [], "the session is locked");
    world.send("b", "3");
    assert_eq!(world.told(), [granted(2, "b", LOCK)]);
}

#[test]
fn who_waits_gets_a_session_that_comes_free() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    assert_eq!(world.accept_next(2, 500), None);
    let got = world.take(1, 1);
    world.close(1);
    assert_eq!(world.told(), [granted(2, "a", LOCK)]);
    assert_eq!(texts(&world.take(2, 1)), texts(&got));
}

#[test]
fn who_waits_in_vain_is_told_in_time() {
    let mut world = World::with_sessions();
    assert_eq!(world.accept_next(1, 500), None);
    assert_eq!(world.accept_next(2, 300), None);
    assert_eq!(world.entity.due().unwrap().as_millis(), 300);
    world.at(299);
    assert_eq!(world.told(), []);
    world.at(300);
    assert_eq!(world.told(), [Told::TimedOut(ReceiverId(2))]);
    world.at(500);
    assert_eq!(world.told(), [Told::TimedOut(ReceiverId(1))]);
    world.send("a", "1");
    assert_eq!(world.told(), [], "nobody waits any more");
    assert_eq!(world.entity.due(), None);
}

#[test]
fn who_has_gone_gets_no_session() {
    let mut world = World::with_sessions();
    assert_eq!(world.accept_next(1, 500), None);
    assert_eq!(world.accept_next(2, 500), None);
    world.close(1);
    world.send("a", "1");
    assert_eq!(world.told(), [granted(2, "a", LOCK)]);
    world.close(2);
    assert_eq!(world.accept_next(3, 500).as_deref(), Some("a"));
}

#[test]
fn neither_a_state_nor_scheduled_or_deferred_messages_make_a_session_the_next() {
    let mut world = World::with_sessions();
    world.accept(1, "state").unwrap();
    world.set_state(1, Some(b"s")).unwrap();
    world.close(1);
    world.try_send(scheduled("scheduled", "1", 900)).unwrap();
    world.send("deferred", "2");
    world.accept(2, "deferred").unwrap();
    let got = world.take(2, 1);
    world.settle(&got[0], defer()).unwrap();
    world.close(2);
    assert_eq!(world.accept_next(3, 5_000), None);
    world.at(900);
    assert_eq!(world.told(), [granted(3, "scheduled", 900 + LOCK)]);
}

#[test]
fn sessions_are_for_all_or_for_nobody() {
    let mut world = World::with_sessions();
    let opened = world.entity.open(ReceiverId(1), Part::Main, Mode::PeekLock);
    assert_eq!(opened, Err(Refusal::SessionsRequired));
    assert_eq!(world.entity.open(ReceiverId(1), Part::DeadLetter, Mode::PeekLock), Ok(()));
    let mut world = World::plain();
    assert_eq!(world.accept(1, "a"), Err(Refusal::SessionsNotSupported));
    let next = Accept::Next { until: WallTime::from_millis(9) };
    let next = world.entity.accept(ReceiverId(1), Mode::PeekLock, next, world.now, &mut world.fx);
    assert_eq!(next, Err(Refusal::SessionsNotSupported));
}

#[test]
fn whether_it_requires_sessions_does_not_change() {
    let mut world = World::with_sessions();
    world.entity.set_properties(properties(false));
    assert!(world.entity.properties().requires_session);
    assert!(world.accept(1, "a").is_ok());
}

#[test]
fn there_is_a_most_of_sessions() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.max_sessions = 2);
    world.send("a", "1");
    world.accept(1, "b").unwrap();
    assert_eq!(world.accept(2, "c"), Err(Refusal::QuotaExceeded));
    assert!(world.accept(2, "a").is_ok());
    world.close(1);
    assert!(world.accept(3, "c").is_ok());
}
