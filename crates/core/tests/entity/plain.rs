//! Receivers without sessions.

use barid_core::entity::{Outcome, Part, ReceiverId, Refusal};

use super::store::Told;
use super::world::{LOCK, World, abandon, counted, texts};

fn ready(receiver: u64) -> Told {
    Told::Ready(ReceiverId(receiver))
}

/// An entity without sessions, and three receivers that wait.
fn three_wait() -> World {
    let mut world = World::plain();
    for receiver in 1..=3 {
        world.open(receiver, Part::Main);
        assert!(world.take(receiver, 1).is_empty());
    }
    world
}

#[test]
fn messages_have_locks_of_their_own() {
    let mut world = World::plain();
    world.send_all("", &["1", "2"]);
    world.open(1, Part::Main);
    let first = world.take(1, 1);
    world.later(400);
    let second = world.take(1, 1);
    assert_eq!((first[0].locked_until, second[0].locked_until), (LOCK, 400 + LOCK));
    world.at(LOCK);
    assert_eq!(world.settle(&first[0], Outcome::Complete), Err(Refusal::MessageLockLost));
    world.complete(&second[0]);
    assert_eq!(counted(&world.take(1, 1)), [("1", 1)]);
}

#[test]
fn a_lock_is_renewed_by_its_token() {
    let mut world = World::plain();
    world.send("", "1");
    world.open(1, Part::Main);
    let got = world.take(1, 1);
    world.later(600);
    let (now, token) = (world.now, got[0].token);
    let renewed = world.entity.renew_message(Part::Main, token, now, &mut world.fx);
    assert_eq!(renewed.unwrap().as_millis(), 600 + LOCK);
    world.at(599 + LOCK);
    assert_eq!(world.entity.counts().locked, 1);
    world.at(600 + LOCK);
    assert_eq!(world.entity.counts().locked, 0);
    let renewed = world.entity.renew_message(Part::Main, token, world.now, &mut world.fx);
    assert_eq!(renewed, Err(Refusal::MessageLockLost));
}

#[test]
fn messages_of_a_receiver_that_has_gone_stay_locked() {
    let mut world = World::plain();
    world.send("", "1");
    world.open(1, Part::Main);
    let got = world.take(1, 1);
    world.close(1);
    world.open(2, Part::Main);
    assert!(world.take(2, 1).is_empty());
    world.settle(&got[0], abandon()).unwrap();
    assert_eq!(world.told(), [ready(2)]);
    assert_eq!(counted(&world.take(2, 1)), [("1", 1)]);
}

#[test]
fn who_waits_is_told_first_come_first_served() {
    let mut world = three_wait();
    world.send("", "1");
    world.send("", "2");
    assert_eq!(world.told(), [ready(1), ready(2)]);
    assert_eq!(texts(&world.take(2, 1)), ["1"]);
    assert_eq!(texts(&world.take(1, 1)), ["2"]);
    // Both have taken a message, so the third receiver is first now.
    assert!(world.take(1, 1).is_empty());
    world.send("", "3");
    assert_eq!(world.told(), [ready(3)]);
}

#[test]
fn who_cannot_take_passes_its_turn_on() {
    let mut world = three_wait();
    world.send("", "1");
    assert_eq!(world.told(), [ready(1)]);
    assert!(world.take(1, 0).is_empty());
    assert_eq!(world.told(), [ready(2)]);
    world.close(2);
    assert_eq!(world.told(), [ready(3)]);
    assert_eq!(texts(&world.take(3, 1)), ["1"]);
}

#[test]
fn who_was_told_and_came_too_late_keeps_its_turn() {
    let mut world = three_wait();
    world.send("", "1");
    assert_eq!(world.told(), [ready(1)]);
    world.open(4, Part::Main);
    assert_eq!(texts(&world.take(4, 1)), ["1"]);
    assert!(world.take(1, 1).is_empty());
    world.send("", "2");
    assert_eq!(world.told(), [ready(1)]);
}

#[test]
fn who_leaves_some_has_the_next_one_told() {
    let mut world = World::plain();
    world.open(1, Part::Main);
    world.open(2, Part::Main);
    assert!(world.take(1, 9).is_empty());
    assert!(world.take(2, 9).is_empty());
    world.send("", "1");
    world.open(3, Part::Main);
    world.send("", "2");
    assert_eq!(world.told(), [ready(1), ready(2)]);
    assert!(world.take(1, 0).is_empty());
    assert!(world.take(2, 0).is_empty());
    assert_eq!(texts(&world.take(3, 1)), ["1"]);
    assert_eq!(world.told(), []);
}

#[test]
fn what_comes_back_is_in_its_old_place() {
    let mut world = World::plain();
    world.send_all("", &["1", "2", "3"]);
    world.open(1, Part::Main);
    world.open(2, Part::Main);
    let first = world.take(1, 1);
    let second = world.take(2, 1);
    world.settle(&second[0], Outcome::Release).unwrap();
    world.settle(&first[0], abandon()).unwrap();
    assert_eq!(counted(&world.take(1, 9)), [("1", 1), ("2", 0), ("3", 0)]);
}

#[test]
fn the_first_messages_are_deleted_up_to_a_time() {
    let mut world = World::plain();
    world.send_all("", &["1", "2", "3"]);
    world.open(1, Part::Main);
    world.take(1, 1);
    world.later(10);
    world.send("", "4");
    let delete = |world: &mut World, max, before| {
        let before = barid_core::time::WallTime::from_millis(before);
        world.entity.delete_before(Part::Main, max, before, &mut world.fx)
    };
    assert_eq!(delete(&mut world, 1, 10), 1);
    assert_eq!(world.texts(Part::Main), ["1", "3", "4"], "a locked one stays");
    assert_eq!(delete(&mut world, 9, 10), 1);
    assert_eq!(delete(&mut world, 9, 11), 1);
    assert_eq!(world.texts(Part::Main), ["1"]);
    assert_eq!(world.fx.store.bodies.len(), 1);
}

#[test]
fn a_token_is_good_for_its_own_part_and_message() {
    let mut world = World::plain();
    world.send_all("", &["1", "2"]);
    world.open(1, Part::Main);
    let got = world.take(1, 2);
    let swapped = barid_core::entity::LockToken::new(got[0].token.lock(), got[1].token.number());
    let forged = super::world::Got { token: swapped, ..got[0].clone() };
    assert_eq!(world.settle(&forged, Outcome::Complete), Err(Refusal::MessageLockLost));
    let elsewhere = world.settle_in(Part::DeadLetter, &got[0], Outcome::Complete);
    assert_eq!(elsewhere, Err(Refusal::MessageLockLost));
    assert_eq!(world.entity.counts().locked, 2);
}

#[test]
fn a_session_id_is_a_property_like_others() {
    let mut world = World::plain();
    world.send("a", "1");
    world.open(1, Part::Main);
    assert_eq!(world.take(1, 1)[0].entry.session.as_deref(), Some("a"));
    assert_eq!(world.entity.counts().sessions, 0);
    assert!(world.entity.sessions(None, 0, 9).is_empty());
}
