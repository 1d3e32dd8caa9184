//! Messages are sent through a topic.

use std::time::Duration;

use barid_core::entity::{Outcome, Refusal};
use barid_core::value::{Scope, Value};

use super::*;

const TOPIC: &str = r#"{ "Topics": [{ "Name": "t", "Subscriptions": [
    { "Name": "all" },
    { "Name": "red", "Rules": [{ "Name": "r", "Properties": {
        "SqlFilter": { "SqlExpression": "color = 'red' AND sys.Label LIKE 'order%'" } } }] },
    { "Name": "changed", "Rules": [
        { "Name": "plain" },
        { "Name": "one", "Properties": { "Action": { "SqlExpression": "SET COLOR = 'blue'" } } },
        { "Name": "two", "Properties": { "CorrelationFilter": { "Properties": { "color": "red" } },
            "Action": { "SqlExpression": "SET sys.SessionId = 'x'; REMOVE color" } } }] },
    { "Name": "sessions", "Properties": { "RequiresSession": true } }] }] }"#;

fn red(text: &str) -> Incoming {
    with(text, |builder| {
        builder
            .property(Field::Subject, ValueRef::String("order 1"))
            .application_property("Color", ValueRef::String("red"));
    })
}

#[test]
fn each_subscription_gets_what_its_rules_match() {
    let world = World::new();
    world.declare(TOPIC);
    assert_eq!(world.send("t", message("1")), Ok(0));
    world.send("t", red("2")).unwrap();
    assert_eq!(world.texts("t/Subscriptions/all", Part::Main), ["1", "2"]);
    assert_eq!(world.texts("t/Subscriptions/red", Part::Main), ["2"]);
    let bytes = |name: &str| world.entries(name, Part::Main).pop().unwrap().body.bytes.unwrap();
    let (all, red) = (bytes("t/Subscriptions/all"), bytes("t/Subscriptions/red"));
    assert!(Arc::ptr_eq(&all, &red), "one message in memory");
}

#[test]
fn each_rule_with_an_action_makes_a_copy_of_its_own() {
    let world = World::new();
    world.declare(TOPIC);
    world.send("t", red("m")).unwrap();
    let entries = world.entries("t/Subscriptions/changed", Part::Main);
    let overlay = |at: usize| entries[at].overlay.as_deref();
    assert_eq!((entries.len(), overlay(0)), (3, None));
    let one = overlay(1).unwrap();
    assert_eq!(
        one.get(Scope::User, "Color"),
        Some(&Value::from("blue")),
        "as the sender spells it"
    );
    assert_eq!(one.get(Scope::User, "RuleName"), Some(&Value::from("one")));
    let two = overlay(2).unwrap();
    assert_eq!(two.get(Scope::User, "Color"), Some(&Value::Null));
    assert_eq!(entries[2].session.as_deref(), Some("x"));
}

#[test]
fn without_a_session_it_is_a_dead_letter_where_sessions_are() {
    let world = World::new();
    world.declare(TOPIC);
    world.send("t", message("m")).unwrap();
    let mut other = of_session("s", "n");
    other.session = Some("s".into());
    world.send("t", other).unwrap();
    assert_eq!(world.texts("t/Subscriptions/sessions", Part::Main), ["n"]);
    let [dead] = &*world.entries("t/Subscriptions/sessions", Part::DeadLetter) else {
        panic!("one")
    };
    let overlay = dead.overlay.as_deref().unwrap();
    let reason = overlay.get(Scope::User, "DeadLetterReason");
    assert_eq!(reason, Some(&Value::from("Session ID is null")));
}

#[test]
fn all_subscriptions_take_a_batch_or_none() {
    let world = World::new();
    world.declare(
        r#"{ "Topics": [{ "Name": "t", "Properties": { "MaxMessageSizeInKilobytes": 1 },
            "Subscriptions": [{ "Name": "a", "Rules": [{ "Name": "r", "Properties": {
                "SqlFilter": { "SqlExpression": "small = 1" } } }] }, { "Name": "b" }] }] }"#,
    );
    let small = with("m", |builder| {
        builder.application_property("small", ValueRef::Int(1));
    });
    let batch = Batch::from_vec(vec![small.clone(), message(&"x".repeat(2_000))]);
    let refused = world.node("t").send(batch, world.now, &mut Commits::default());
    assert_eq!(refused, Err(Refusal::MessageTooLarge.into()));
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), [""; 0]);
    world.send("t", small).unwrap();
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), ["m"]);
    let nonsense = Incoming { bytes: [1, 2].into(), ..message("") };
    assert_eq!(world.send("t", nonsense), Err(SendError::Malformed));
}

#[test]
fn duplicates_are_dropped_by_each_subscription() {
    let world = World::new();
    world.declare(
        r#"{ "Topics": [{ "Name": "t", "Properties": { "RequiresDuplicateDetection": true },
            "Subscriptions": [{ "Name": "s", "Rules": [{ "Name": "plain" },
                { "Name": "a", "Properties": { "Action": { "SqlExpression": "SET x = 1" } } }] }] }] }"#,
    );
    for _ in 0..2 {
        let mut message = message("m");
        message.message_id = Some("id".into());
        world.send("t", message).unwrap();
    }
    assert_eq!(world.texts("t/Subscriptions/s", Part::Main), ["m", "m"], "one for each rule");
}

#[test]
fn scheduled_messages_come_to_those_who_have_subscribed_when_it_is_time() {
    let mut world = World::new();
    world.declare(r#"{ "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "a" }] }] }"#);
    let at = WallTime::from_millis(world.now.as_millis() + 1_000);
    let scheduled = |text| Incoming { scheduled_at: Some(at), ..red(text) };
    let batch = Batch::from_vec(vec![scheduled("1"), message("now"), scheduled("2")]);
    let numbers = world.node("t").send(batch, world.now, &mut Commits::default()).unwrap();
    assert_eq!(&numbers[..], [1, 0, 2]);
    let topic = world.entities().find_topic("t").unwrap();
    topic
        .held()
        .with(&mut Commits::default(), |entity, fx| entity.cancel_scheduled(&[2], fx))
        .unwrap();
    let late = SubscriptionDefinition::new("b");
    let (by, mut commits) = (DeclaredBy::Admin, Commits::default());
    world.entities().create_subscription("t", &late, by, &mut commits).unwrap();
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), ["now"]);
    assert_eq!(world.entries("t", Part::Main)[0].state, State::Scheduled { at });
    world.sleep(1_000);
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), ["now", "1"]);
    assert_eq!(world.texts("t/Subscriptions/b", Part::Main), ["1"]);
    assert_eq!(world.texts("t", Part::Main), [""; 0]);
    let delivery = world.take("t/Subscriptions/b", Part::Main).remove(0);
    world
        .queue("t/Subscriptions/b")
        .with(&mut commits, |entity, fx| {
            entity.settle(Part::Main, delivery.token, Outcome::Complete, world.now, fx)
        })
        .unwrap();
}

#[test]
fn what_is_due_when_the_clock_has_been_set_forward_is_done_before_its_timer() {
    let mut world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "q" }], "Topics": [{ "Name": "t", "Subscriptions": [
            { "Name": "a", "Properties": { "DeadLetteringOnMessageExpiration": true } }] }] }"#,
    );
    let at = WallTime::from_millis(world.now.as_millis() + 60_000);
    world.send("q", Incoming { scheduled_at: Some(at), ..message("m") }).unwrap();
    let expires = Incoming { time_to_live: Some(Duration::from_secs(60)), ..message("n") };
    world.send("t", expires).unwrap();
    world.entities().wake_overdue(world.now);
    assert_eq!(world.entries("q", Part::Main)[0].state, State::Scheduled { at });
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), ["n"]);
    world.entities().wake_overdue(at);
    assert_eq!(world.entries("q", Part::Main)[0].state, State::Active);
    assert_eq!(world.texts("t/Subscriptions/a", Part::DeadLetter), ["n"]);
    world.sleep(60_000);
    assert_eq!(world.texts("q", Part::Main), ["m"]);
}

#[test]
fn what_a_topic_says_holds_for_its_subscriptions() {
    let world = World::new();
    world.declare(
        r#"{ "Topics": [{ "Name": "t", "Properties": { "DefaultMessageTimeToLive": "PT1H" },
            "Subscriptions": [{ "Name": "s", "Properties": { "DefaultMessageTimeToLive": "P1D" } }] }] }"#,
    );
    let subscription = world.queue("t/Subscriptions/s");
    let time_to_live = || subscription.read(|entity| entity.properties().default_time_to_live);
    assert_eq!(time_to_live(), Some(std::time::Duration::from_secs(3_600)));
    let mut topic = TopicDefinition::new("t");
    let (by, mut commits) = (DeclaredBy::Admin, Commits::default());
    world.entities().update_topic(&topic, by, &mut commits).unwrap();
    assert_eq!(time_to_live(), Some(std::time::Duration::from_secs(86_400)));
    topic.properties.requires_duplicate_detection = true;
    let error = world.entities().update_topic(&topic, by, &mut commits).unwrap_err();
    assert!(matches!(error, EntityError::Fixed { .. }));
}
