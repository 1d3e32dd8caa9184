//! Order of the messages in a session.

use barid_core::entity::{Outcome, ReceiverId};

use super::store::Told;
use super::world::{LOCK, World, abandon, defer, scheduled, texts};

#[test]
fn strictly_by_number() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.send("b", "other");
    world.send_all("a", &["3", "4"]);
    world.accept(1, "a").unwrap();
    assert_eq!(texts(&world.take(1, 3)), ["1", "2", "3"]);
    assert_eq!(texts(&world.take(1, 3)), ["4"]);
}

#[test]
fn several_may_be_in_flight_and_are_settled_in_any_order() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 3);
    world.complete(&got[2]);
    world.complete(&got[0]);
    world.complete(&got[1]);
    assert_eq!(world.entity.counts().active + world.entity.counts().locked, 0);
}

#[test]
fn while_one_is_in_flight_the_next_may_be_sent() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let first = world.take(1, 2);
    world.send("a", "2");
    assert_eq!(world.told(), [Told::Ready(ReceiverId(1))]);
    assert_eq!(texts(&world.take(1, 2)), ["2"]);
    world.complete(&first[0]);
}

#[test]
fn none_is_delivered_twice_at_a_time() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.accept(1, "a").unwrap();
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
    assert_eq!(texts(&world.take(1, 9)), ["2"]);
    assert!(world.take(1, 9).is_empty());
}

#[test]
fn an_abandoned_message_is_served_before_all_behind_it() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    world.settle(&got[0], abandon()).unwrap();
    assert_eq!(texts(&world.take(1, 1)), ["1"], "with the second in flight");
    world.settle(&got[1], abandon()).unwrap();
    assert_eq!(texts(&world.take(1, 9)), ["2", "3"], "before one that was never delivered");
}

#[test]
fn released_messages_are_in_their_old_places() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3", "4"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 3);
    for one in [2, 0, 1] {
        world.settle(&got[one], Outcome::Release).unwrap();
    }
    assert_eq!(texts(&world.take(1, 9)), ["1", "2", "3", "4"]);
}

#[test]
fn what_a_lost_lock_or_a_closed_receiver_had_is_in_its_old_place() {
    for expires in [true, false] {
        let mut world = World::with_sessions();
        world.send_all("a", &["1", "2", "3", "4"]);
        world.accept(1, "a").unwrap();
        let got = world.take(1, 3);
        world.complete(&got[1]);
        if expires {
            world.at(LOCK);
        } else {
            world.close(1);
        }
        world.accept(2, "a").unwrap();
        assert_eq!(texts(&world.take(2, 9)), ["1", "3", "4"]);
    }
}

#[test]
fn deferred_messages_leave_the_stream() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], defer()).unwrap();
    assert_eq!(texts(&world.take(1, 9)), ["2"]);
    world.close(1);
    world.accept(2, "a").unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["2"]);
}

#[test]
fn scheduled_messages_join_behind_what_came_before_their_time() {
    let mut world = World::with_sessions();
    world.try_send(scheduled("a", "later", 10)).unwrap();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    assert_eq!(texts(&world.take(1, 9)), ["1"]);
    world.send("a", "2");
    world.at(10);
    world.send("a", "3");
    assert_eq!(texts(&world.take(1, 9)), ["2", "later", "3"]);
}

#[test]
fn the_order_survives_a_crash() {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2", "3"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    world.settle(&got[0], abandon()).unwrap();
    world.restart();
    world.send("a", "4");
    world.accept(2, "a").unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["1", "2", "3", "4"]);
}

#[test]
fn who_releases_all_it_gets_is_told_once_each_time() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], Outcome::Release).unwrap();
    assert_eq!(world.told(), [], "it had what it wanted");
    let got = world.take(1, 2);
    world.settle(&got[0], Outcome::Release).unwrap();
    assert_eq!(world.told(), [Told::Ready(ReceiverId(1))]);
    world.send("a", "2");
    assert_eq!(world.told(), []);
}
