//! Deferred messages, which are received by their numbers.

use barid_core::entity::{Mode, Outcome, Part, ReceiverId, Refusal, State};

use super::world::{LOCK, World, abandon, counted, defer, texts};

/// A session whose first two messages are deferred; its receiver holds it.
fn deferred() -> World {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3"]);
    world.accept(1, "a").unwrap();
    for got in world.take(1, 2) {
        world.settle(&got, defer()).unwrap();
    }
    world
}

#[test]
fn they_are_received_by_number_only() {
    let mut world = deferred();
    assert_eq!(texts(&world.take(1, 9)), ["3"]);
    let got = world.take_deferred(Part::Main, 1, &[2, 1]).unwrap();
    assert_eq!(texts(&got), ["1", "2"]);
    world.complete(&got[0]);
    assert_eq!(world.texts(Part::Main), ["2", "3"]);
}

#[test]
fn all_or_none() {
    let mut world = deferred();
    for numbers in [[1, 3], [1, 99]] {
        let got = world.take_deferred(Part::Main, 1, &numbers);
        assert_eq!(got.unwrap_err(), Refusal::MessageNotFound);
    }
    assert_eq!(texts(&world.take_deferred(Part::Main, 1, &[1]).unwrap()), ["1"]);
    let again = world.take_deferred(Part::Main, 1, &[2, 1]);
    assert_eq!(again.unwrap_err(), Refusal::MessageNotFound, "it is in flight");
    let twice = world.take_deferred(Part::Main, 1, &[2, 2]).unwrap();
    assert_eq!(texts(&twice), ["2"]);
}

#[test]
fn only_the_holder_of_their_session_gets_them() {
    let mut world = deferred();
    world.accept(2, "b").unwrap();
    let got = world.take_deferred(Part::Main, 2, &[1]);
    assert_eq!(got.unwrap_err(), Refusal::MessageNotFound);
    world.close(1);
    let got = world.take_deferred(Part::Main, 1, &[1]);
    assert_eq!(got.unwrap_err(), Refusal::SessionLockLost);
}

#[test]
fn what_comes_back_stays_deferred() {
    let mut world = deferred();
    world.set(|properties| properties.max_delivery_count = 9);
    let got = world.take_deferred(Part::Main, 1, &[1, 2]).unwrap();
    world.settle(&got[0], abandon()).unwrap();
    world.settle(&got[1], Outcome::Release).unwrap();
    assert_eq!(texts(&world.take(1, 9)), ["3"]);
    let got = world.take_deferred(Part::Main, 1, &[1, 2]).unwrap();
    assert_eq!(counted(&got), [("1", 2), ("2", 1)]);
    world.at(LOCK);
    assert_eq!(world.entity.counts().deferred, 2);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("3", 1)]);
    let got = world.take_deferred(Part::Main, 2, &[1, 2]).unwrap();
    assert_eq!(counted(&got), [("1", 3), ("2", 2)]);
}

#[test]
fn they_are_dead_lettered_when_they_were_delivered_in_vain_too_often() {
    let mut world = deferred();
    for _ in 0..2 {
        let got = world.take_deferred(Part::Main, 1, &[1]).unwrap();
        world.settle(&got[0], abandon()).unwrap();
    }
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
    assert_eq!(world.entity.counts().deferred, 1);
}

#[test]
fn they_stay_so_over_a_crash() {
    let mut world = deferred();
    world.restart();
    world.accept(2, "a").unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["3"]);
    assert_eq!(texts(&world.take_deferred(Part::Main, 2, &[1, 2]).unwrap()), ["1", "2"]);
}

#[test]
fn they_can_be_deleted_as_they_are_received() {
    let mut world = deferred();
    let (mut out, receiver) = (Vec::new(), Some(ReceiverId(1)));
    let (now, fx) = (world.now, &mut world.fx);
    let mode = Mode::ReceiveAndDelete;
    world.entity.receive_deferred(Part::Main, receiver, &[1], mode, now, fx, &mut out).unwrap();
    assert_eq!(out.len(), 1);
    assert_eq!(world.texts(Part::Main), ["2", "3"]);
}

#[test]
fn without_sessions_each_is_locked_by_itself() {
    let mut world = World::plain();
    world.send("", "1");
    world.open(1, Part::Main);
    let got = world.take(1, 1);
    world.settle(&got[0], defer()).unwrap();
    assert_eq!(world.entries(Part::Main)[0].state, State::Deferred);
    let got = world.take_deferred(Part::Main, 1, &[1]).unwrap();
    let again = world.take_deferred(Part::Main, 2, &[1]);
    assert_eq!(again.unwrap_err(), Refusal::MessageNotFound);
    assert_eq!(got[0].locked_until, LOCK);
    world.at(LOCK);
    assert_eq!(counted(&world.take_deferred(Part::Main, 2, &[1]).unwrap()), [("1", 2)]);
}
