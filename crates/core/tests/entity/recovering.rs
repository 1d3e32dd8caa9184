//! The contents after a crash, and after everything was removed.

use std::sync::Arc;

use barid_core::entity::{Incoming, Outcome, Part, Refusal};

use super::store::Store;
use super::world::{World, dead_letter, defer, message, scheduled, texts};

#[test]
fn locks_end_with_the_process_and_nothing_else_is_lost() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.set_state(1, Some(b"s")).unwrap();
    world.restart();
    assert_eq!(world.settle(&got[0], Outcome::Complete), Err(Refusal::SessionLockLost));
    assert_eq!(world.try_take(1, 1).unwrap_err(), Refusal::SessionLockLost);
    world.accept(2, "a").unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["1", "2"]);
    assert_eq!(world.state("a").unwrap(), b"s");
}

#[test]
fn what_was_completed_does_not_come_back() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.complete(&got[0]);
    world.restart();
    assert_eq!(world.accept_next(2, 9).as_deref(), Some("a"));
    assert_eq!(texts(&world.take(2, 9)), ["2"]);
}

#[test]
fn a_token_from_before_is_none_of_now() {
    let mut world = World::plain();
    world.send("", "1");
    world.open(1, Part::Main);
    let stale = world.take(1, 1);
    world.restart();
    world.open(1, Part::Main);
    let got = world.take(1, 1);
    assert_eq!(world.settle(&stale[0], Outcome::Complete), Err(Refusal::MessageLockLost));
    world.complete(&got[0]);
}

#[test]
fn no_number_is_given_again_though_its_message_was_never_durable() {
    let mut world = World::with_sessions();
    world.send("a", "durable");
    let durable: Store = world.fx.store.clone();
    let lost = world.send("a", "seen by a receiver");
    world.fx.store = durable;
    world.restart();
    assert_eq!(world.texts(Part::Main), ["durable"]);
    assert!(world.send("a", "another") > lost);
}

#[test]
fn a_process_that_ends_as_it_should_leaves_no_gap() {
    let mut world = World::with_sessions();
    let last = world.send("a", "1");
    world.entity.note_numbers(&mut world.fx);
    world.restart();
    assert_eq!(world.send("a", "2"), last + 1);
    world.restart();
    assert!(world.send("a", "3") > last + 2, "and one that does not leaves one");
}

#[test]
fn numbers_of_all_parts_are_reserved_before_the_first_message_comes() {
    let world = World::with_sessions();
    assert_eq!(world.fx.store.numbers.len(), Part::ALL.len());
    assert!(world.fx.store.numbers.values().all(|reserved| *reserved > 1 << 20));
}

/// An entity with one message of each kind.
fn full() -> World {
    let mut world = World::with_sessions();
    let window = std::time::Duration::from_millis(100);
    world.set(|properties| properties.duplicate_detection = Some(window));
    let named = Incoming { message_id: Some(Arc::from("m")), ..message("a", "1") };
    world.try_send(named).unwrap();
    world.send_all("a", &["2", "3", "4"]);
    world.try_send(scheduled("a", "5", 900)).unwrap();
    world.accept(1, "a").unwrap();
    let got = world.take(1, 3);
    world.settle(&got[1], defer()).unwrap();
    world.settle(&got[2], dead_letter("r", "d")).unwrap();
    world.set_state(1, Some(b"s")).unwrap();
    world
}

#[test]
fn a_purge_leaves_locks_states_and_other_parts() {
    let mut world = full();
    assert_eq!(world.entity.purge(Part::Main, &mut world.fx), 4);
    let counts = world.entity.counts();
    assert_eq!((counts.active, counts.locked, counts.deferred, counts.scheduled), (0, 0, 0, 0));
    assert_eq!((counts.dead_lettered, counts.sessions, counts.bytes), (1, 1, 2));
    assert_eq!(world.state("a").unwrap(), b"s");
    assert_eq!(world.accept(2, "a"), Err(Refusal::SessionCannotBeLocked));
    world.send("a", "6");
    assert_eq!(texts(&world.take(1, 9)), ["6"]);
    assert_eq!(world.entity.purge(Part::DeadLetter, &mut world.fx), 1);
    assert_eq!(world.fx.store.entries.len(), 1);
}

#[test]
fn what_was_taken_before_a_purge_cannot_be_settled() {
    let mut world = World::plain();
    world.send("", "1");
    world.open(1, Part::Main);
    let got = world.take(1, 2);
    world.entity.purge(Part::Main, &mut world.fx);
    assert_eq!(world.settle(&got[0], Outcome::Complete), Err(Refusal::MessageLockLost));
    world.told();
    world.send("", "2");
    assert_eq!(texts(&world.take(1, 1)), ["2"]);
}

#[test]
fn an_entity_that_goes_leaves_nothing_in_the_store() {
    let mut world = full();
    world.entity.delete_all(&mut world.fx);
    let store = &world.fx.store;
    assert!(store.entries.is_empty() && store.bodies.is_empty());
    assert!(store.states.is_empty() && store.seen.is_empty());
    assert_eq!((world.fx.memory, world.entity.bytes_in_memory()), (0, 0));
}
