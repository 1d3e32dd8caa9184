//! Messages are forwarded and moved to other entities.

use barid_core::entity::{Outcome, Overlay};
use barid_core::value::{Scope, Value};

use super::*;

fn reason(entry: &Entry) -> Option<&Value> {
    let overlay: Option<&Overlay> = entry.overlay.as_deref();
    overlay.and_then(|overlay| overlay.get(Scope::User, "DeadLetterReason"))
}

/// `q0` forwards to `q1`, and so on.
fn chain(world: &World, length: usize) {
    let queue = |at: usize| {
        let target = if at < length { format!("q{}", at + 1) } else { String::new() };
        format!(r#"{{ "Name": "q{at}", "Properties": {{ "ForwardTo": "{target}" }} }}"#)
    };
    let queues: Vec<_> = (0..=length).map(queue).collect();
    world.declare(&format!(r#"{{ "Queues": [{}] }}"#, queues.join(",")));
}

#[test]
fn a_message_is_forwarded_four_times() {
    let world = World::new();
    chain(&world, 4);
    assert_eq!(world.send("q0", message("m")), Ok(1));
    assert_eq!(world.texts("q4", Part::Main), ["m"]);
    assert_eq!(world.queue("q0").counts().bytes, 0);
}

#[test]
fn the_fifth_time_is_one_too_many() {
    let world = World::new();
    chain(&world, 5);
    assert_eq!(world.send("q0", message("m")), Ok(0));
    assert_eq!(world.texts("q5", Part::Main), [""; 0]);
    let [entry] = &*world.entries("q4", Part::TransferDeadLetter) else { panic!("one") };
    assert_eq!(reason(entry), Some(&Value::from("MaxTransferHopCountExceeded")));
}

#[test]
fn a_circle_ends_in_a_transfer_dead_letter_queue() {
    let world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "a", "Properties": { "ForwardTo": "t" } }],
             "Topics": [{ "Name": "t", "Subscriptions": [
                { "Name": "s", "Properties": { "ForwardTo": "a" } }, { "Name": "seen" }] }] }"#,
    );
    world.send("t", message("m")).unwrap();
    assert_eq!(world.texts("t/Subscriptions/seen", Part::Main).len(), 3);
    assert_eq!(world.texts("t/Subscriptions/s", Part::TransferDeadLetter), ["m"]);
}

#[test]
fn what_cannot_go_on_is_not_lost() {
    let world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "ForwardTo": "gone" } }, { "Name": "gone" },
            { "Name": "r", "Properties": { "ForwardTo": "sessions" } },
            { "Name": "sessions", "Properties": { "RequiresSession": true } }] }"#,
    );
    world.entities().delete("gone", &mut Commits::default()).unwrap();
    world.send("q", message("m")).unwrap();
    let [entry] = &*world.entries("q", Part::TransferDeadLetter) else { panic!("one") };
    assert_eq!(reason(entry), Some(&Value::from("MessagingEntityNotFound")));
    world.send("r", message("n")).unwrap();
    let [entry] = &*world.entries("r", Part::TransferDeadLetter) else { panic!("one") };
    assert_eq!(reason(entry), Some(&Value::from("Session ID is null")));
}

#[test]
fn messages_wait_for_a_closed_target_and_do_not_count_as_delivered() {
    let mut world = World::new();
    // A queue that detects duplicates stores what it forwards.
    let shard_of = |path: &str| world.shards.of("t", path).index();
    let other = |path: &String| shard_of(path) != shard_of("q");
    let target = (0..100).map(|number| format!("target{number}")).find(other).unwrap();
    world.declare(&format!(
        r#"{{ "Queues": [{{ "Name": "{target}" }}, {{ "Name": "q", "Properties": {{
            "ForwardTo": "{target}", "RequiresDuplicateDetection": true, "MaxDeliveryCount": 3 }} }}] }}"#
    ));
    let closed = world.shards.of("t", &target);
    closed.set_open(false);
    world.send("q", message("m")).unwrap();
    for _ in 0..10 {
        world.sleep(61_000);
    }
    let [entry] = &*world.entries("q", Part::Main) else { panic!("one") };
    assert_eq!(entry.delivery_count, 0);
    closed.set_open(true);
    world.agenda.opened();
    world.settle();
    assert_eq!(world.texts(&target, Part::Main), ["m"]);
    assert_eq!(world.texts("q", Part::Main), [""; 0]);
}

#[test]
fn messages_that_wait_for_a_closed_target_move_to_the_next_one() {
    let mut world = World::new();
    let shard_of = |path: &str| world.shards.of("t", path).index();
    let found = |is_other: bool| {
        let is_such = |path: &String| (shard_of(path) != shard_of("q")) == is_other;
        (0..100).map(|number| format!("target{number}")).find(is_such).unwrap()
    };
    let (first, second) = (found(true), found(false));
    let forwards_to = |target: &str| {
        format!(
            r#"{{ "Queues": [{{ "Name": "{first}" }}, {{ "Name": "{second}" }}, {{ "Name": "q", "Properties": {{
                "ForwardTo": "{target}", "RequiresDuplicateDetection": true }} }}] }}"#
        )
    };
    world.declare(&forwards_to(&first));
    world.shards.of("t", &first).set_open(false);
    world.send("q", message("m")).unwrap();
    world.sleep(1_000);
    assert_eq!(world.texts("q", Part::Main), ["m"]);
    let definitions: Definitions = serde_json::from_str(&forwards_to(&second)).unwrap();
    let queue = &definitions.queues[2];
    world.entities().update_queue(queue, DeclaredBy::Admin, &mut Commits::default()).unwrap();
    world.settle();
    assert_eq!(world.texts(&second, Part::Main), ["m"]);
}

#[test]
fn dead_letters_are_moved_when_they_are_durable_elsewhere() {
    // With and without memory for their bodies.
    for memory in [PLENTY, 0] {
        let world = World::over(&stores(), memory);
        world.declare(
            r#"{ "Queues": [{ "Name": "q", "Properties": { "ForwardDeadLetteredMessagesTo": "dead" } },
                { "Name": "dead" }] }"#,
        );
        for text in ["1", "2"] {
            world.send("q", message(text)).unwrap();
        }
        let deliveries = world.take("q", Part::Main);
        world.queue("q").with(&mut Commits::default(), |entity, fx| {
            for delivery in deliveries {
                let reason = Some("why".into());
                let outcome = Outcome::DeadLetter { reason, description: None, changes: vec![] };
                entity.settle(Part::Main, delivery.token, outcome, world.now, fx).unwrap();
            }
        });
        assert_eq!(world.texts("dead", Part::Main), ["1", "2"]);
        assert_eq!(world.texts("q", Part::DeadLetter), [""; 0]);
        let entry = world.entries("dead", Part::Main).remove(0);
        assert_eq!(reason(&entry), Some(&Value::from("why")));
        let source = entry.overlay.as_deref().unwrap();
        let source = source.get(Scope::Annotation, "x-opt-deadletter-source");
        assert_eq!(source, Some(&Value::from("q")));
    }
}

#[test]
fn what_lay_there_before_goes_on_and_so_does_what_duplicates_are_looked_for_in() {
    let world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "RequiresDuplicateDetection": true } },
            { "Name": "to" }] }"#,
    );
    let sent = |text: &str| {
        let mut message = message(text);
        message.message_id = Some("id".into());
        world.send("q", message).unwrap()
    };
    assert_eq!(sent("1"), 1);
    let mut definition = QueueDefinition::new("q");
    definition.properties.requires_duplicate_detection = true;
    definition.properties.forward_to = "to".into();
    let (by, mut commits) = (DeclaredBy::Admin, Commits::default());
    world.entities().update_queue(&definition, by, &mut commits).unwrap();
    assert_eq!(world.texts("to", Part::Main), ["1"]);
    assert_eq!(sent("again"), 0);
    world.send("q", message("2")).unwrap();
    assert_eq!(world.texts("to", Part::Main), ["1", "2"]);
    assert_eq!(world.texts("q", Part::Main), [""; 0]);
}

#[test]
fn who_moves_in_a_circle_ends_too() {
    let world = World::new();
    let queue = |name: &str, to: &str| {
        format!(
            r#"{{ "Name": "{name}", "Properties": {{ "ForwardTo": "{to}",
                "RequiresDuplicateDetection": true }} }}"#
        )
    };
    world.declare(&format!(r#"{{ "Queues": [{}, {}] }}"#, queue("a", "b"), queue("b", "a")));
    world.send("a", message("m")).unwrap();
    assert_eq!(world.texts("a", Part::TransferDeadLetter), ["m"]);
    assert_eq!(world.texts("b", Part::TransferDeadLetter), [""; 0]);
}

#[test]
fn nobody_is_in_the_way_of_who_ends_forwarding() {
    let world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "ForwardTo": "to" } }, { "Name": "to" }] }"#,
    );
    world.declare(r#"{ "Queues": [{ "Name": "q" }] }"#);
    world.send("q", message("m")).unwrap();
    assert_eq!(world.texts("q", Part::Main), ["m"]);
    assert_eq!(world.take("q", Part::Main).len(), 1);
}
