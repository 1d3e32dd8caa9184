//! Locks on sessions.

use barid_core::entity::{AT_ONCE_MAX, Mode, Outcome, Part, ReceiverId, Refusal};
use barid_core::time::WallTime;

use super::store::Told;
use super::world::{LOCK, World, texts};

#[test]
fn the_lock_is_on_present_and_future_messages() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    world.send("a", "2");
    assert_eq!(world.accept_next(2, 500), None, "nobody else has a way to them");
    assert_eq!(texts(&world.take(1, 9)), ["1", "2"]);
}

#[test]
fn a_session_has_one_holder() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    assert_eq!(world.accept(2, "a"), Err(Refusal::SessionCannotBeLocked));
    assert_eq!(world.accept(1, "a"), Err(Refusal::SessionCannotBeLocked));
    assert!(world.accept(2, "b").is_ok(), "sessions do not wait for each other");
}

#[test]
fn the_lock_is_counted_from_accept_and_from_renewal() {
    let mut world = World::with_sessions();
    world.later(50);
    assert_eq!(world.accept(1, "a"), Ok(50 + LOCK));
    assert_eq!(world.entity.due().unwrap().as_millis(), 50 + LOCK);
    world.later(700);
    let renewed = world.entity.renew_session(ReceiverId(1), world.now, &mut world.fx);
    assert_eq!(renewed.unwrap().as_millis(), 700 + LOCK);
    let (session, until) = world.entity.session_of(ReceiverId(1)).unwrap();
    assert_eq!((&**session, until.as_millis()), ("a", 700 + LOCK));
    world.at(699 + LOCK);
    assert_eq!(world.told(), []);
    world.at(700 + LOCK);
    assert_eq!(world.told(), [Told::LockLost(ReceiverId(1))]);
}

#[test]
fn neither_delivering_nor_completing_ends_or_extends_it() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    world.later(900);
    let got = world.take(1, 1);
    assert_eq!(got[0].locked_until, LOCK);
    world.complete(&got[0]);
    assert_eq!(world.entity.session_of(ReceiverId(1)).unwrap().1.as_millis(), LOCK);
    world.at(LOCK);
    assert_eq!(world.told(), [Told::LockLost(ReceiverId(1))]);
}

#[test]
fn the_end_of_a_lock_frees_the_session_at_once_though_its_holder_is_idle() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    assert!(world.take(1, 100).is_empty(), "it has credit, and nothing to do");
    assert_eq!(world.accept_next(2, 5_000), None);
    world.later(500);
    world.send("a", "1");
    world.at(LOCK);
    let granted = Told::Granted(ReceiverId(2), "a".into(), WallTime::from_millis(2 * LOCK));
    let ready = Told::Ready(ReceiverId(1));
    assert_eq!(world.told(), [ready, Told::LockLost(ReceiverId(1)), granted]);
    assert_eq!(texts(&world.take(2, 9)), ["1"]);
}

#[test]
fn who_loses_a_lock_is_told_that_and_not_of_what_came_back() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    world.take(1, 9);
    world.at(LOCK);
    assert_eq!(world.told(), [Told::LockLost(ReceiverId(1))]);
}

#[test]
fn a_lock_that_has_ended_is_of_no_use() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    // The entity does not know the time before the first of these calls.
    world.later(LOCK);
    assert_eq!(world.settle(&got[0], Outcome::Complete), Err(Refusal::SessionLockLost));
    let renewed = world.entity.renew_session(ReceiverId(1), world.now, &mut world.fx);
    assert_eq!(renewed, Err(Refusal::SessionLockLost));
    assert_eq!(world.try_take(1, 1).unwrap_err(), Refusal::SessionLockLost);
    assert_eq!(world.set_state(1, Some(b"s")), Err(Refusal::SessionLockLost));
    assert_eq!(world.entity.session_of(ReceiverId(1)), None);
    assert_eq!(world.texts(Part::Main), ["1"]);
}

#[test]
fn a_token_of_an_earlier_lock_is_not_one_of_a_later_lock() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let stale = world.take(1, 1);
    world.close(1);
    world.accept(2, "a").unwrap();
    let got = world.take(2, 1);
    assert_eq!(world.settle(&stale[0], Outcome::Complete), Err(Refusal::SessionLockLost));
    world.complete(&got[0]);
    assert_eq!(world.settle(&got[0], Outcome::Complete), Err(Refusal::MessageLockLost));
}

#[test]
fn a_session_that_deletes_is_locked_too() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    assert_eq!(world.accept_as(1, "a", Mode::ReceiveAndDelete), Ok(LOCK));
    assert_eq!(world.accept(2, "a"), Err(Refusal::SessionCannotBeLocked));
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
    assert_eq!(world.texts(Part::Main), ["2"]);
    world.at(LOCK);
    assert_eq!(world.told(), [Told::LockLost(ReceiverId(1))]);
    world.accept(2, "a").unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["2"]);
}

#[test]
fn what_is_deleted_with_its_bytes_in_the_store_is_locked_until_they_are_read() {
    let mut world = World::with_sessions();
    world.fx.keeps_in_memory = false;
    world.send("a", "1");
    world.accept_as(1, "a", Mode::ReceiveAndDelete).unwrap();
    let got = world.take(1, 1);
    assert_eq!(got[0].entry.body.bytes, None);
    assert_eq!(texts(&got), ["1"]);
    world.complete(&got[0]);
    assert!(world.fx.store.bodies.is_empty());
}

#[test]
fn a_message_under_a_sessions_lock_has_none_of_its_own() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let token = world.take(1, 1)[0].token;
    let renewed = world.entity.renew_message(Part::Main, token, world.now, &mut world.fx);
    assert_eq!(renewed, Err(Refusal::MessageLockLost));
}

#[test]
fn many_locks_end_bit_by_bit() {
    let mut world = World::plain();
    world.set(|properties| properties.max_messages = 3 * AT_ONCE_MAX);
    for _ in 0..2 * AT_ONCE_MAX {
        world.send("", "m");
    }
    world.open(1, Part::Main);
    let got = world.take(1, 2 * AT_ONCE_MAX);
    world.later(LOCK);
    let last = got.last().unwrap();
    assert_eq!(world.settle(last, Outcome::Complete), Err(Refusal::MessageLockLost));
    assert_eq!(world.entity.counts().active, AT_ONCE_MAX, "the others are locked for nobody");
    assert!(world.entity.due().is_some_and(|due| due <= world.now));
    world.at(LOCK);
    assert_eq!(world.entity.counts().locked, 0);
    assert!(world.entries(Part::Main).iter().all(|entry| entry.delivery_count == 1));
}

#[test]
fn many_locks_of_sessions_end_bit_by_bit() {
    let mut world = World::with_sessions();
    let sessions = 2 * AT_ONCE_MAX;
    world.set(|properties| properties.max_sessions = sessions);
    for receiver in 0..sessions {
        world.accept(receiver as u64, &format!("{receiver}")).unwrap();
    }
    world.later(LOCK);
    let last = sessions as u64 - 1;
    assert_eq!(world.try_take(last, 1).unwrap_err(), Refusal::SessionLockLost);
    assert!(world.entity.counts().sessions > 0, "not all at once");
    // A receiver that asks for one of the other sessions gets it.
    world.accept(last + 1, &format!("{last}")).unwrap();
    world.at(LOCK);
    assert_eq!(world.entity.counts().sessions, 1);
}
