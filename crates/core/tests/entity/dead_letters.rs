//! Dead letters.

use std::sync::Arc;

use barid_core::entity::{Entry, Mode, Outcome, Overlay, Part, ReceiverId, Refusal};
use barid_core::value::{Scope, Value};

use super::store::Told;
use super::world::{LOCK, World, abandon, counted, dead_letter, defer, lives, message, texts};

pub fn assert_says(entry: &Entry, reason: &str, description: &str) {
    let overlay = entry.overlay.as_ref().expect("a dead letter says why");
    let said = |name| overlay.get(Scope::User, name);
    assert_eq!(said("DeadLetterReason"), Some(&Value::from(reason)));
    assert_eq!(said("DeadLetterErrorDescription"), Some(&Value::from(description)));
}

/// A session with one locked message; another one was dead-lettered.
fn dead() -> World {
    let mut world = World::with_sessions();
    world.send_all("a", &["1", "2"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 2);
    world.settle(&got[1], dead_letter("bad", "very bad")).unwrap();
    world
}

#[test]
fn session_id_body_and_old_number_stay() {
    let world = dead();
    let entry = &world.entries(Part::DeadLetter)[0];
    assert_eq!(world.text(entry), "2");
    assert_eq!(entry.session.as_deref(), Some("a"));
    assert_eq!((entry.number, entry.enqueued_number), (1, 2), "it has numbers of its own");
    assert_says(entry, "bad", "very bad");
    let counts = world.entity.counts();
    assert_eq!((counts.locked, counts.dead_lettered, counts.bytes), (1, 1, 2));
}

#[test]
fn it_moves_at_once_or_not_at_all() {
    let mut world = dead();
    assert_eq!(world.fx.store.entries.len(), 2);
    world.restart();
    assert_eq!(world.texts(Part::Main), ["1"]);
    assert_eq!(world.texts(Part::DeadLetter), ["2"]);
}

#[test]
fn properties_are_changed_on_the_way() {
    let mut world = World::with_sessions();
    let mut overlay = Overlay::new();
    overlay.set(Scope::User, "tries", Value::from(1));
    overlay.set(Scope::System, "Label", Value::from("l"));
    let overlay = Some(Arc::new(overlay));
    let incoming = barid_core::entity::Incoming { overlay, ..message("a", "1") };
    world.try_send(incoming).unwrap();
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    let changes = vec![("tries".into(), Value::from(2)), ("by".into(), Value::from("me"))];
    world.settle(&got[0], Outcome::Abandon(changes)).unwrap();
    let got = world.take(1, 1);
    let changes = vec![("tries".into(), Value::from(3))];
    let outcome = Outcome::DeadLetter { reason: None, description: None, changes };
    world.settle(&got[0], outcome).unwrap();
    let overlay = world.entries(Part::DeadLetter)[0].overlay.clone().unwrap();
    let all: Vec<_> = overlay.iter().collect();
    let expected = [
        (Scope::User, "tries", &Value::from(3)),
        (Scope::System, "Label", &Value::from("l")),
        (Scope::User, "by", &Value::from("me")),
    ];
    assert_eq!(all, expected);
}

#[test]
fn those_of_an_entity_with_sessions_have_none() {
    let mut world = dead();
    world.open(2, Part::DeadLetter);
    let got = world.take(2, 9);
    assert_eq!(texts(&got), ["2"]);
    assert_eq!(got[0].locked_until, LOCK);
    world.settle_in(Part::DeadLetter, &got[0], Outcome::Complete).unwrap();
    assert_eq!(world.entity.counts().dead_lettered, 0);
    assert_eq!(world.fx.store.bodies.len(), 1);
}

#[test]
fn they_cannot_die_again() {
    let mut world = dead();
    world.open(2, Part::DeadLetter);
    for _ in 0..9 {
        let got = world.take(2, 1);
        assert_eq!(counted(&got), [("2", 0)], "nothing counts here");
        let again = world.settle_in(Part::DeadLetter, &got[0], dead_letter("r", "d"));
        assert_eq!(again, Err(Refusal::DeadLetteredAlready));
        world.settle_in(Part::DeadLetter, &got[0], abandon()).unwrap();
    }
}

#[test]
fn receivers_are_told_of_them() {
    let mut world = World::with_sessions();
    world.open(2, Part::DeadLetter);
    assert!(world.take(2, 1).is_empty());
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], dead_letter("r", "d")).unwrap();
    assert_eq!(world.told(), [Told::Ready(ReceiverId(2))]);
}

#[test]
fn a_deferred_message_that_is_dead_lettered_is_so_no_longer() {
    let mut world = World::with_sessions();
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], defer()).unwrap();
    let got = world.take_deferred(Part::Main, 1, &[1]).unwrap();
    world.settle(&got[0], dead_letter("r", "d")).unwrap();
    assert_eq!(world.entity.counts().deferred, 0);
    world.open(2, Part::DeadLetter);
    assert_eq!(texts(&world.take(2, 1)), ["1"]);
}

#[test]
fn what_cannot_be_kept_in_the_stream_goes_there_at_once() {
    let mut world = World::with_sessions();
    let (now, fx) = (world.now, &mut world.fx);
    let reason = "Session ID is null";
    world
        .entity
        .dead_letter_incoming(Part::DeadLetter, message("", "1"), reason, "d", now, fx)
        .unwrap();
    let transfer = Part::TransferDeadLetter;
    world.entity.dead_letter_incoming(transfer, message("a", "2"), "r", "d", now, fx).unwrap();
    assert_says(&world.entries(Part::DeadLetter)[0], reason, "d");
    assert_eq!(world.texts(transfer), ["2"]);
    assert_eq!(world.entity.counts().transfer_dead_lettered, 1);
    let ids: Vec<_> = world.fx.store.bodies.keys().copied().collect();
    assert_eq!(ids, [1, 2], "bodies are told apart in the whole entity");
    world.set(|properties| properties.max_messages = 2);
    let (now, fx) = (world.now, &mut world.fx);
    let full = world.entity.dead_letter_incoming(transfer, message("", "3"), "r", "d", now, fx);
    assert_eq!(full, Err(Refusal::QuotaExceeded));
}

#[test]
fn a_receiver_may_delete_them_as_it_gets_them() {
    let mut world = dead();
    world.entity.open(ReceiverId(2), Part::DeadLetter, Mode::ReceiveAndDelete).unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["2"]);
    assert_eq!(world.texts(Part::DeadLetter), [""; 0]);
}

#[test]
fn what_receivers_may_change_of_a_message_is_bounded() {
    use barid_core::entity::{CHANGED_BYTES_MAX, CHANGED_MAX};

    let mut world = World::with_sessions();
    world.send_all("a", &["1"]);
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    let many = |count: usize, of: char| -> Vec<(Box<str>, Value)> {
        (0..count).map(|n| (format!("{of}{n}").into(), Value::from(1))).collect()
    };
    let long = vec![("a".into(), Value::from("x".repeat(CHANGED_BYTES_MAX).as_str()))];
    for too_much in [many(CHANGED_MAX + 1, 'a'), long] {
        for outcome in [
            Outcome::Abandon(too_much.clone()),
            Outcome::Defer(too_much.clone()),
            Outcome::DeadLetter { reason: None, description: None, changes: too_much.clone() },
        ] {
            assert_eq!(world.settle(&got[0], outcome), Err(Refusal::TooManyChanges));
        }
    }
    // The message is still locked. Changes made before count as well.
    world.settle(&got[0], Outcome::Abandon(many(CHANGED_MAX / 2 + 1, 'a'))).unwrap();
    let again = world.take(1, 1);
    let more = Outcome::Abandon(many(CHANGED_MAX / 2, 'b'));
    assert_eq!(world.settle(&again[0], more), Err(Refusal::TooManyChanges));
    world.settle(&again[0], Outcome::Complete).unwrap();
}

fn resubmit(world: &mut World, number: u64) -> Result<u64, Refusal> {
    let now = world.now;
    world.entity.resubmit(Part::DeadLetter, number, now, &mut world.fx)
}

#[test]
fn one_that_is_resubmitted_is_as_new_and_the_last() {
    let mut world = dead();
    world.send("a", "3");
    world.later(5);
    assert_eq!(resubmit(&mut world, 1), Ok(4));
    assert_eq!(resubmit(&mut world, 1), Err(Refusal::MessageNotFound), "it is there once");
    world.restart();
    assert_eq!(world.texts(Part::Main), ["1", "3", "2"]);
    assert!(world.texts(Part::DeadLetter).is_empty());
    let entry = &world.entries(Part::Main)[2];
    assert_eq!((entry.number, entry.enqueued_number, entry.delivery_count), (4, 4, 0));
    assert_eq!(entry.enqueued_at, world.now);
    assert_eq!(entry.overlay, None, "no reason is left");
    world.accept(2, "a").unwrap();
    assert_eq!(counted(&world.take(2, 9)), [("1", 0), ("3", 0), ("2", 0)]);
}

#[test]
fn one_that_has_expired_lives_as_long_as_before() {
    let mut world = World::plain();
    world.set(|properties| properties.dead_lettering_on_expiration = true);
    world.try_send(lives("", "1", 50)).unwrap();
    world.at(60);
    assert_eq!(resubmit(&mut world, 1), Ok(2));
    world.at(109);
    assert_eq!(world.texts(Part::Main), ["1"]);
    world.at(110);
    assert_eq!(world.texts(Part::DeadLetter), ["1"]);
}

#[test]
fn one_that_a_receiver_has_is_not_resubmitted_and_the_others_stay_in_order() {
    let mut world = World::plain();
    for text in ["1", "2", "3", "4"] {
        world.send("", text);
    }
    world.open(1, Part::Main);
    for got in world.take(1, 4) {
        world.settle(&got, dead_letter("bad", "very bad")).unwrap();
    }
    world.open(2, Part::DeadLetter);
    assert_eq!(texts(&world.take(2, 1)), ["1"]);
    assert_eq!(resubmit(&mut world, 1), Err(Refusal::MessageNotFound));
    // From the front and from the middle of those that wait.
    resubmit(&mut world, 3).unwrap();
    resubmit(&mut world, 2).unwrap();
    assert_eq!(texts(&world.take(2, 9)), ["4"]);
    assert_eq!(texts(&world.take(1, 9)), ["3", "2"]);
}

#[test]
fn a_receiver_that_waits_gets_it_and_a_session_has_to_fit() {
    let mut world = World::with_sessions();
    world.set(|properties| properties.max_sessions = 1);
    world.send("a", "1");
    world.accept(1, "a").unwrap();
    let got = world.take(1, 1);
    world.settle(&got[0], dead_letter("bad", "very bad")).unwrap();
    world.close(1);
    world.send("b", "2");
    assert_eq!(resubmit(&mut world, 1), Err(Refusal::QuotaExceeded));
    assert_eq!(world.entity.counts().dead_lettered, 1);
    world.accept(1, "b").unwrap();
    let got = world.take(1, 1);
    world.complete(&got[0]);
    world.close(1);
    assert_eq!(world.accept_next(3, 1_000), None);
    world.told();
    assert_eq!(resubmit(&mut world, 1), Ok(3));
    assert!(
        world.told().iter().any(|told| matches!(told, Told::Granted { .. })),
        "the session is granted to the receiver that waited"
    );
}
