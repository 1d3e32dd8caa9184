//! Scheduled messages.

use barid_core::entity::{AT_ONCE_MAX, Part, ReceiverId, Refusal, Sent, State};
use barid_core::time::WallTime;

use super::store::Told;
use super::world::{World, lives, scheduled, texts};

#[test]
fn a_scheduled_message_gets_a_new_number_at_its_time() {
    let mut world = World::with_sessions();
    assert_eq!(world.try_send(scheduled("a", "later", 10)), Ok(Sent::Scheduled(1)));
    world.send("a", "now");
    assert_eq!(world.entity.due().unwrap().as_millis(), 10);
    let at = WallTime::from_millis(10);
    assert_eq!(world.entries(Part::Main)[0].state, State::Scheduled { at });
    world.at(9);
    assert_eq!(world.entity.counts().scheduled, 1);
    world.at(10);
    let entry = &world.entries(Part::Main)[1];
    assert_eq!((entry.number, entry.enqueued_number, entry.body.id), (3, 3, 1));
    assert_eq!((entry.enqueued_at, entry.state), (at, State::Active));
    assert_eq!((world.entity.counts().scheduled, world.entity.counts().active), (0, 2));
}

#[test]
fn what_is_scheduled_for_now_or_before_is_sent_now() {
    let mut world = World::with_sessions();
    world.later(10);
    assert_eq!(world.try_send(scheduled("a", "1", 10)), Ok(Sent::Enqueued(1)));
    assert_eq!(world.try_send(scheduled("a", "2", 3)), Ok(Sent::Enqueued(2)));
}

#[test]
fn receivers_are_told_when_the_time_comes() {
    let mut world = World::with_sessions();
    world.try_send(scheduled("a", "1", 10)).unwrap();
    world.accept(1, "a").unwrap();
    assert!(world.take(1, 1).is_empty());
    world.at(10);
    assert_eq!(world.told(), [Told::Ready(ReceiverId(1))]);
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
}

#[test]
fn messages_are_cancelled_before_their_time_all_or_none() {
    let mut world = World::with_sessions();
    for text in ["1", "2", "3"] {
        world.try_send(scheduled("a", text, 10)).unwrap();
    }
    world.send("a", "4");
    for wrong in [[1, 4], [1, 99]] {
        let cancelled = world.entity.cancel_scheduled(&wrong, &mut world.fx);
        assert_eq!(cancelled, Err(Refusal::MessageNotFound));
    }
    assert_eq!(world.entity.counts().scheduled, 3);
    world.entity.cancel_scheduled(&[3, 1, 3], &mut world.fx).unwrap();
    world.at(10);
    assert_eq!(world.texts(Part::Main), ["4", "2"]);
    let cancelled = world.entity.cancel_scheduled(&[2], &mut world.fx);
    assert_eq!(cancelled, Err(Refusal::MessageNotFound), "its time has come");
    assert_eq!(world.fx.store.bodies.len(), 2);
}

#[test]
fn the_time_to_live_begins_when_it_is_enqueued() {
    let mut world = World::plain();
    let message = barid_core::entity::Incoming {
        scheduled_at: Some(WallTime::from_millis(100)),
        ..lives("", "1", 50)
    };
    world.try_send(message).unwrap();
    world.at(149);
    assert_eq!(world.texts(Part::Main), ["1"]);
    world.at(150);
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
}

#[test]
fn they_are_still_scheduled_after_a_crash() {
    let mut world = World::with_sessions();
    world.try_send(scheduled("a", "1", 10)).unwrap();
    world.restart();
    assert_eq!(world.entity.due().unwrap().as_millis(), 10);
    world.at(20);
    world.accept(1, "a").unwrap();
    assert_eq!(texts(&world.take(1, 1)), ["1"]);
}

#[test]
fn many_at_one_time_become_active_bit_by_bit() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.max_messages = 2 * AT_ONCE_MAX);
    for _ in 0..=AT_ONCE_MAX {
        world.try_send(scheduled("a", "1", 10)).unwrap();
    }
    world.at(10);
    assert_eq!(world.entity.counts().scheduled, 1);
    assert_eq!(world.entity.due(), Some(world.now));
    world.at(10);
    assert_eq!(world.entity.counts().active, AT_ONCE_MAX + 1);
}
