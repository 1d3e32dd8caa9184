//! Times to live.

use std::time::Duration;

use barid_core::entity::{AT_ONCE_MAX, Outcome, Part, Sent};
use barid_core::time::WallTime;

use super::world::{LOCK, World, abandon, defer, lives, texts};

#[test]
fn the_shorter_of_its_own_and_the_default_counts_from_enqueuing() {
    let mut world = World::plain();
    world.set(|properties| properties.default_time_to_live = Some(Duration::from_millis(100)));
    world.later(10);
    world.try_send(lives("", "own", 50)).unwrap();
    world.try_send(lives("", "default", 500)).unwrap();
    world.send("", "none");
    let expires: Vec<_> =
        world.entries(Part::Main).iter().map(|one| one.expires_at.unwrap().as_millis()).collect();
    assert_eq!(expires, [60, 110, 110]);
}

#[test]
fn one_expired_message_takes_its_whole_session_with_it() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.try_send(lives("a", "2", 50)).unwrap();
    world.send("a", "3");
    world.send("b", "4");
    world.later(50);
    world.accept(1, "a").unwrap();
    assert!(world.take(1, 9).is_empty());
    assert_eq!(world.texts(Part::Main), ["4"]);
    let dead = world.entries(Part::DeadLetter);
    assert_eq!(world.texts(Part::DeadLetter), ["1", "2", "3"]);
    for entry in &dead {
        let description = "The message expired and was dead lettered.";
        super::dead_letters::assert_says(entry, "TTLExpiredException", description);
    }
}

#[test]
fn or_drops_it() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.dead_lettering_on_expiration = false);
    world.try_send(lives("a", "1", 50)).unwrap();
    world.send("a", "2");
    world.later(50);
    world.accept(1, "a").unwrap();
    assert_eq!((world.entity.counts().active, world.entity.counts().dead_lettered), (0, 0));
    assert!(world.fx.store.entries.is_empty() && world.fx.store.bodies.is_empty());
    assert_eq!(world.fx.memory, 0);
}

#[test]
fn nothing_expires_in_a_session_while_nobody_asks_for_it() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    assert_eq!(world.entity.due(), None);
    world.at(5_000);
    assert_eq!(world.texts(Part::Main), ["1"], "a peek still shows it");
}

#[test]
fn a_session_is_not_granted_for_messages_that_have_expired() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    world.send("b", "2");
    world.later(60);
    assert_eq!(world.accept_next(1, 500).as_deref(), Some("b"));
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
    world.try_send(lives("c", "3", 10)).unwrap();
    world.later(80);
    assert_eq!(world.accept_next(2, 500), None);
}

#[test]
fn it_is_seen_when_the_holder_takes() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    world.accept(1, "a").unwrap();
    world.later(50);
    assert!(world.take(1, 1).is_empty());
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
}

#[test]
fn a_locked_message_stays_until_it_comes_back() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    world.try_send(lives("a", "2", 50)).unwrap();
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.later(60);
    assert!(world.take(1, 1).is_empty());
    assert_eq!(world.texts(Part::DeadLetter), ["2"], "what is in flight is left");
    assert_eq!(world.texts(Part::Main), ["1"]);
    world.settle(&got[0], abandon()).unwrap();
    assert!(world.take(1, 1).is_empty());
    assert_eq!(world.texts(Part::DeadLetter), ["2", "1"]);
}

#[test]
fn a_locked_message_can_be_completed_after_its_time() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.at(60);
    world.complete(&got[0]);
    assert_eq!(world.texts(Part::DeadLetter), [""; 0]);
}

#[test]
fn what_was_taken_before_its_time_expires_nothing() {
    let mut world = World::with_sessions();
    world.try_send(lives("a", "1", 50)).unwrap();
    world.send("a", "2");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.complete(&got[0]);
    world.later(60);
    assert_eq!(texts(&world.take(1, 9)), ["2"]);
}

#[test]
fn deferred_messages_do_not_expire() {
    for mut world in [World::with_sessions(), World::plain()] {
        world.try_send(lives("a", "1", 50)).unwrap();
        if world.entity.properties().requires_session {
            world.accept(1, "a").unwrap();
        } else {
            world.open(1, Part::Main);
        }
        let got = world.take(1, 1);
        world.settle(&got[0], defer()).unwrap();
        world.at(60);
        assert!(world.take(1, 1).is_empty());
        assert_eq!(texts(&world.take_deferred(Part::Main, 1, &[1]).unwrap()), ["1"]);
    }
}

#[test]
fn nothing_expires_among_the_dead_letters() {
    let mut world = World::plain();
    world.try_send(lives("", "1", 50)).unwrap();
    world.at(50);
    world.at(5_000);
    world.open(1, Part::DeadLetter);
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
}

#[test]
fn without_sessions_each_expires_by_itself_in_time() {
    let mut world = World::plain();
    world.send("", "1");
    world.try_send(lives("", "2", 50)).unwrap();
    world.try_send(lives("", "3", 40)).unwrap();
    world.send("", "4");
    assert_eq!(world.entity.due().unwrap().as_millis(), 40);
    world.at(40);
    assert_eq!(world.texts(Part::DeadLetter), ["3"]);
    world.later(50);
    world.open(1, Part::Main);
    assert_eq!(texts(&world.take(1, 9)), ["1", "4"], "also if the timer is late");
    assert_eq!(world.texts(Part::DeadLetter), ["3", "2"]);
}

#[test]
fn without_sessions_a_locked_message_expires_when_its_lock_has_ended() {
    let mut world = World::plain();
    world.try_send(lives("", "1", 50)).unwrap();
    world.open(1, Part::Main);
    let got = world.take(1, 1);
    world.at(60);
    assert_eq!(world.texts(Part::Main), ["1"]);
    world.settle(&got[0], Outcome::Release).unwrap();
    world.at(60);
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
    world.try_send(lives("", "2", 50)).unwrap();
    world.take(1, 1);
    world.at(60 + LOCK);
    assert_eq!(world.texts(Part::DeadLetter), ["1", "2"]);
}

#[test]
fn most_of_a_queue_may_expire_out_of_its_middle() {
    let mut world = World::plain();
    for n in 0..100 {
        let sent = match n % 10 {
            0 => world.try_send(super::world::message("", "stays")),
            _ => world.try_send(lives("", "goes", 1_000 - n)),
        };
        assert!(matches!(sent, Ok(Sent::Enqueued(_))));
    }
    world.at(1_000);
    assert_eq!(world.entity.counts().dead_lettered, 90);
    world.open(1, Part::Main);
    assert_eq!(texts(&world.take(1, 100)), ["stays"; 10]);
}

#[test]
fn many_messages_of_a_session_expire_bit_by_bit() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.max_messages = 3 * AT_ONCE_MAX);
    for _ in 0..2 * AT_ONCE_MAX {
        world.try_send(lives("a", "m", 10)).unwrap();
    }
    world.later(10);
    world.accept(1, "a").unwrap();
    assert_eq!(world.entity.counts().dead_lettered, AT_ONCE_MAX);
    assert!(world.take(1, 9).is_empty(), "nobody gets the others");
    world.send("a", "new");
    assert_eq!(texts(&world.take(1, 9)), ["new"]);
    assert_eq!(world.entity.due(), Some(WallTime::default()));
    world.at(10);
    assert_eq!(world.entity.counts().dead_lettered, 2 * AT_ONCE_MAX);
    assert_eq!(world.texts(Part::Main), ["new"]);
}
