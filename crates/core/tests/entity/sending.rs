//! Messages that are accepted, and messages that are refused.

use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    ID_LEN_MAX, Incoming, MESSAGE_OVERHEAD, Part, Refusal, SESSION_OVERHEAD, Sent,
};

use super::world::{World, message, scheduled};

#[test]
fn numbers_count_from_one() {
    let mut world = World::with_sessions();
    assert_eq!(world.send("a", "1"), 1);
    assert_eq!(world.send("b", "2"), 2);
}

#[test]
fn the_empty_session_id_is_one() {
    let mut world = World::with_sessions();
    let empty = Incoming { session: Some(Arc::from("")), ..message("", "1") };
    world.try_send(empty).unwrap();
    world.restart();
    world.accept(1, "").unwrap();
    let got = world.take(1, 9);
    assert_eq!(got[0].entry.session.as_deref(), Some(""));
    world.set_state(1, Some(b"s")).unwrap();
    world.restart();
    assert_eq!(world.state("").unwrap(), b"s");
    assert_eq!(world.accept_next(2, 9).as_deref(), Some(""));
}

#[test]
fn a_session_id_is_needed_where_there_are_sessions() {
    let mut world = World::with_sessions();
    assert_eq!(world.try_send(message("", "1")), Err(Refusal::SessionIdMissing));
    let later = Incoming { session: None, ..scheduled("a", "1", 9) };
    assert_eq!(world.try_send(later), Err(Refusal::SessionIdMissing));
    assert_eq!(
        Refusal::SessionIdMissing.to_string(),
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have \
         session support enabled can only receive messages that have the SessionId set to a valid value."
    );
    assert!(world.fx.store.bodies.is_empty());
}

#[test]
fn ids_and_messages_have_bounds() {
    let mut world = World::with_sessions();
    let long: String = "x".repeat(ID_LEN_MAX + 1);
    assert_eq!(world.try_send(message(&long, "1")), Err(Refusal::IdTooLong));
    let named = Incoming { message_id: Some(Arc::from(&*long)), ..message("a", "1") };
    assert_eq!(world.try_send(named), Err(Refusal::IdTooLong));
    assert_eq!(world.accept(1, &long), Err(Refusal::IdTooLong));
    let largest = world.entity.properties().max_message_size;
    let large = message("a", &"x".repeat(largest + 1));
    assert_eq!(world.try_send(large), Err(Refusal::MessageTooLarge));
    assert!(world.try_send(message("a", &"x".repeat(largest))).is_ok());
}

#[test]
fn the_quota_is_for_all_parts_together() {
    let mut world = World::with_sessions();
    // Each message counts with its session id, and the session with its own id.
    let bytes = (10 + 2) + 2 * MESSAGE_OVERHEAD + (SESSION_OVERHEAD + 1);
    world.set(|properties| (properties.max_messages, properties.max_bytes) = (2, bytes));
    world.send("a", "12345");
    assert_eq!(world.try_send(message("a", "123456")), Err(Refusal::QuotaExceeded));
    world.send("a", "1");
    assert_eq!(world.try_send(message("a", "")), Err(Refusal::QuotaExceeded));
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], super::world::dead_letter("r", "d")).unwrap();
    assert_eq!(world.try_send(message("a", "")), Err(Refusal::QuotaExceeded));
    world.entity.purge(Part::DeadLetter, &mut world.fx);
    assert!(world.try_send(message("a", "")).is_ok());
}

#[test]
fn a_batch_is_taken_whole_or_not() {
    let mut world = World::with_sessions();
    world.set(|properties| (properties.max_messages, properties.max_sessions) = (3, 2));
    let batch = |sessions: &[&str]| -> Vec<_> {
        sessions.iter().map(|session| message(session, "x")).collect()
    };
    assert_eq!(world.entity.check(&batch(&["a", "b", "a"])), Ok(()));
    assert_eq!(world.entity.check(&batch(&["a"; 4])), Err(Refusal::QuotaExceeded));
    assert_eq!(world.entity.check(&batch(&["a", "b", "c"])), Err(Refusal::QuotaExceeded));
    assert_eq!(world.entity.check(&batch(&["a", ""])), Err(Refusal::SessionIdMissing));
    for message in batch(&["a", "b", "a"]) {
        world.try_send(message).unwrap();
    }
}

#[test]
fn a_message_that_is_sent_again_within_the_window_is_dropped() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.duplicate_detection = Some(Duration::from_millis(100)));
    let named =
        |id: &str, text: &str| Incoming { message_id: Some(Arc::from(id)), ..message("a", text) };
    assert_eq!(world.try_send(named("m", "1")), Ok(Sent::Enqueued(1)));
    world.later(60);
    assert_eq!(world.try_send(named("m", "again")), Ok(Sent::Duplicate));
    assert_eq!(world.try_send(named("n", "2")), Ok(Sent::Enqueued(2)));
    assert_eq!(world.try_send(message("a", "3")), Ok(Sent::Enqueued(3)));
    assert_eq!(world.try_send(message("a", "3")), Ok(Sent::Enqueued(4)), "without id, who knows");
    world.restart();
    world.later(99);
    assert_eq!(world.try_send(named("m", "again")), Ok(Sent::Duplicate));
    assert_eq!(world.entity.due().unwrap().as_millis(), 100);
    world.at(100);
    assert_eq!(world.fx.store.seen.len(), 1);
    assert!(matches!(world.try_send(named("m", "5")), Ok(Sent::Enqueued(_))));
}

#[test]
fn an_id_whose_time_is_over_is_known_no_more_though_nobody_forgot_it() {
    let mut world = World::plain();
    world.set(|properties| properties.duplicate_detection = Some(Duration::from_millis(100)));
    let named = || Incoming { message_id: Some(Arc::from("m")), ..message("", "1") };
    world.try_send(named()).unwrap();
    world.later(100);
    assert!(matches!(world.try_send(named()), Ok(Sent::Enqueued(_))));
    world.at(199);
    assert_eq!(world.try_send(named()), Ok(Sent::Duplicate));
}

#[test]
fn memory_is_asked_for_each_message() {
    let mut world = World::with_sessions();
    world.send("a", "123");
    world.fx.keeps_in_memory = false;
    world.send("a", "12345");
    assert_eq!((world.fx.memory, world.entity.bytes_in_memory()), (3, 3));
    assert_eq!(world.entity.counts().bytes, 8);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    assert_eq!((got[0].entry.body.size, got[1].entry.body.size), (3, 5));
    assert!(got[0].entry.body.bytes.is_some() && got[1].entry.body.bytes.is_none());
    world.complete(&got[0]);
    assert_eq!(world.fx.memory, 0);
}
