//! The state of a session.

use barid_core::entity::{MESSAGE_OVERHEAD, Refusal, SESSION_OVERHEAD, STATE_OVERHEAD};

use super::world::{LOCK, World};

#[test]
fn it_is_null_at_first_and_null_clears_it() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    assert_eq!(world.state("a"), None);
    world.set_state(1, Some(b"step 1")).unwrap();
    world.set_state(1, Some(b"step 2")).unwrap();
    assert_eq!(world.state("a").unwrap(), b"step 2");
    world.set_state(1, None).unwrap();
    assert_eq!(world.state("a"), None);
    assert!(world.fx.store.states.is_empty());
    world.set_state(1, None).unwrap();
}

#[test]
fn no_bytes_clear_it() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    world.set_state(1, Some(b"s")).unwrap();
    world.set_state(1, Some(b"")).unwrap();
    assert_eq!(world.state("a"), None);
    assert!(world.fx.store.states.is_empty());
    world.close(1);
    assert_eq!(world.entity.counts().sessions, 0);
}

#[test]
fn it_belongs_to_one_session() {
    let mut world = World::with_sessions();
    world.accept(1, "a").unwrap();
    world.accept(2, "b").unwrap();
    world.set_state(1, Some(b"of a")).unwrap();
    assert_eq!(world.state("b"), None);
}

#[test]
fn it_survives_consumption_close_expiry_and_crash() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    world.set_state(1, Some(b"s")).unwrap();
    let got = world.take(1, 1);
    world.complete(&got[0]);
    world.close(1);
    assert_eq!(world.state("a").unwrap(), b"s");
    world.accept(2, "a").unwrap();
    world.at(LOCK);
    assert_eq!(world.state("a").unwrap(), b"s");
    world.restart();
    assert_eq!(world.state("a").unwrap(), b"s");
}

#[test]
fn it_needs_a_session_that_is_held() {
    let mut world = World::with_sessions();
    assert_eq!(world.set_state(1, Some(b"s")), Err(Refusal::SessionLockLost));
    world.accept(1, "a").unwrap();
    world.close(1);
    assert_eq!(world.set_state(1, Some(b"s")), Err(Refusal::SessionLockLost));
}

#[test]
fn it_is_no_larger_than_a_message_and_counts_against_the_quota() {
    let mut world = World::with_sessions();
    // Two sessions with their states, and two messages with their session ids.
    let overhead = 2 * (SESSION_OVERHEAD + 1 + STATE_OVERHEAD) + 2 * (MESSAGE_OVERHEAD + 1);
    world.set(|properties| {
        (properties.max_message_size, properties.max_bytes) = (10, 25 + overhead);
    });
    world.accept(1, "a").unwrap();
    world.accept(2, "b").unwrap();
    world.set_state(2, Some(b"0")).unwrap();
    assert_eq!(world.set_state(1, Some(&[0; 11])), Err(Refusal::MessageTooLarge));
    world.set_state(1, Some(&[0; 10])).unwrap();
    assert_eq!(world.entity.counts().bytes, 11);
    assert_eq!(world.fx.memory, 11);
    world.send("a", "0123456789");
    assert_eq!(world.try_send(super::world::message("a", "01234")), Err(Refusal::QuotaExceeded));
    world.send("a", "0123");
    assert_eq!(world.entity.counts().footprint, 25 + overhead);
    assert_eq!(world.set_state(2, Some(b"01")), Err(Refusal::QuotaExceeded));
    world.set_state(1, Some(&[0; 9])).unwrap();
    world.set_state(2, Some(b"01")).unwrap();
    world.set_state(2, Some(b"")).unwrap();
    assert_eq!(world.entity.counts().bytes, 23);
    assert_eq!(world.entity.counts().footprint, 23 + overhead - STATE_OVERHEAD);
}
