//! Deliveries that raise the delivery count, and those that do not.

use barid_core::entity::{Outcome, Part, ReceiverId};

use super::world::{LOCK, World, abandon, counted, defer};

/// A session with three messages, two of which were delivered.
fn delivered() -> (World, Vec<super::world::Got>) {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    assert_eq!(counted(&got), [("1", 0), ("2", 0)], "the first delivery counts from zero");
    (world, got)
}

#[test]
fn a_lock_that_ends_counts_for_each_delivered_message_and_for_no_other() {
    let (mut world, _) = delivered();
    world.at(LOCK);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("1", 1), ("2", 1), ("3", 0)]);
}

#[test]
fn a_message_that_was_settled_before_is_not_counted() {
    let (mut world, got) = delivered();
    world.settle(&got[0], Outcome::Release).unwrap();
    world.complete(&got[1]);
    world.at(LOCK);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("1", 0), ("3", 0)]);
}

#[test]
fn a_receiver_that_goes_counts_for_nothing() {
    let (mut world, _) = delivered();
    world.close(1);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("1", 0), ("2", 0), ("3", 0)]);
}

#[test]
fn a_receiver_that_goes_after_its_lock_has_ended_counts() {
    let (mut world, _) = delivered();
    world.later(LOCK);
    world.close(1);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("1", 1), ("2", 1), ("3", 0)]);
}

#[test]
fn a_completed_message_is_gone() {
    let (mut world, got) = delivered();
    world.complete(&got[0]);
    assert_eq!(world.texts(Part::Main), ["2", "3"]);
    assert_eq!(world.fx.store.bodies.len(), 2);
    world.at(LOCK);
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("2", 1), ("3", 0)]);
}

#[test]
fn abandoning_counts() {
    let (mut world, got) = delivered();
    world.settle(&got[0], abandon()).unwrap();
    assert_eq!(counted(&world.take(1, 1)), [("1", 1)]);
}

#[test]
fn neither_releasing_nor_peeking_renewing_or_accepting_in_vain_counts() {
    let (mut world, got) = delivered();
    for _ in 0..9 {
        let again = world.take(1, 1);
        world.settle(&again[0], Outcome::Release).unwrap();
    }
    world.peek(Part::Main, 0, 9, None);
    world.entity.renew_session(ReceiverId(1), world.now, &mut world.fx).unwrap();
    world.accept(2, "a").unwrap_err();
    world.settle(&got[0], Outcome::Release).unwrap();
    assert_eq!(counted(&world.take(1, 1)), [("1", 0)]);
    assert!(world.entries(Part::Main).iter().all(|entry| entry.delivery_count == 0));
}

#[test]
fn deferring_counts() {
    let (mut world, got) = delivered();
    world.set(|properties| properties.max_delivery_count = 4);
    world.settle(&got[0], defer()).unwrap();
    for (count, outcome) in [(1, defer()), (2, abandon()), (3, Outcome::Release)] {
        let again = world.take_deferred(Part::Main, 1, &[1]).unwrap();
        assert_eq!(counted(&again), [("1", count)]);
        world.settle(&again[0], outcome).unwrap();
    }
    assert_eq!(world.entity.counts().deferred, 1);
}

#[test]
fn deferring_is_never_the_last_delivery() {
    let (mut world, got) = delivered();
    world.set(|properties| properties.max_delivery_count = 1);
    world.settle(&got[0], defer()).unwrap();
    let again = world.take_deferred(Part::Main, 1, &[1]).unwrap();
    assert_eq!(counted(&again), [("1", 1)]);
    world.settle(&again[0], abandon()).unwrap();
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
}

#[test]
fn nothing_counts_among_the_dead_letters() {
    let (mut world, got) = delivered();
    world.settle(&got[0], abandon()).unwrap();
    let again = world.take(1, 1);
    world.settle(&again[0], super::world::dead_letter("r", "d")).unwrap();
    world.open(2, Part::DeadLetter);
    for outcome in [abandon(), Outcome::Release, defer()] {
        let dead = world.take(2, 1);
        assert_eq!(counted(&dead), [("1", 1)]);
        world.settle_in(Part::DeadLetter, &dead[0], outcome).unwrap();
    }
    let deferred = world.take_deferred(Part::DeadLetter, 2, &[1]).unwrap();
    assert_eq!(counted(&deferred), [("1", 1)]);
    world.at(world.now.as_millis() + LOCK);
    assert_eq!(world.entries(Part::DeadLetter)[0].delivery_count, 1);
}

#[test]
fn a_message_that_was_delivered_in_vain_so_many_times_is_dead_lettered() {
    let (mut world, mut got) = delivered();
    for count in 0..3 {
        assert_eq!(counted(&got)[0], ("1", count));
        assert_eq!(world.texts(Part::DeadLetter), [""; 0]);
        world.settle(&got[0], abandon()).unwrap();
        got = world.take(1, 1);
    }
    assert_eq!(counted(&got), [("3", 0)]);
    let dead = &world.entries(Part::DeadLetter)[0];
    assert_eq!((world.text(dead).as_str(), dead.delivery_count), ("1", 3));
    super::dead_letters::assert_says(
        dead,
        "MaxDeliveryCountExceeded",
        "Message could not be consumed after 3 delivery attempts.",
    );
}

#[test]
fn locks_that_end_are_deliveries_in_vain() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    for round in 1..=3 {
        world.accept(round, "a").unwrap();
        assert_eq!(counted(&world.take(round, 9)), [("1", u32::try_from(round).unwrap() - 1)]);
        world.at(round * LOCK);
    }
    assert_eq!(world.texts(Part::Main), [""; 0]);
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
    assert_eq!(world.entity.counts().sessions, 0);
}

#[test]
fn the_count_survives_a_crash_and_a_crash_does_not_count() {
    let (mut world, got) = delivered();
    world.settle(&got[0], abandon()).unwrap();
    world.restart();
    world.accept(1, "a").unwrap();
    assert_eq!(counted(&world.take(1, 9)), [("1", 1), ("2", 0), ("3", 0)]);
}
