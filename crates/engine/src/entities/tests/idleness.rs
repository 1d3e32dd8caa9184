//! Entities that are deleted when nobody uses them.

use barid_core::entity::ReceiverId;

use super::*;

impl World {
    /// Passes time, with a sweep at its end.
    fn idle(&mut self, millis: u64) {
        self.sleep(millis);
        self.entities().delete_idle(MonoTime::from_millis(self.now.as_millis()), self.now);
        self.settle();
    }

    fn paths(&self) -> Vec<String> {
        let nodes = self.entities().list().into_iter();
        nodes.map(|node| node.path().to_owned()).collect()
    }
}

const QUEUES: &str = r#"{ "Queues": [
    { "Name": "kept" }, { "Name": "q", "Properties": { "AutoDeleteOnIdle": "PT10S" } }] }"#;

#[test]
fn an_entity_that_nobody_uses_is_deleted_for_good() {
    let stores = stores();
    let mut world = World::over(&stores, PLENTY);
    world.declare(QUEUES);
    world.idle(0);
    world.idle(9_000);
    assert_eq!(world.paths(), ["kept", "q"]);
    world.send("q", message("m")).unwrap();
    world.idle(9_000);
    world.idle(9_000);
    assert_eq!(world.paths(), ["kept", "q"], "it was used");
    assert!(world.queue("q").used_at() > world.queue("kept").used_at());
    world.idle(1_000);
    assert_eq!(world.paths(), ["kept"]);
    assert_eq!(World::over(&stores, PLENTY).paths(), ["kept"]);
}

#[test]
fn who_waits_uses_an_entity_and_so_does_what_is_scheduled() {
    let mut world = World::new();
    world.declare(QUEUES);
    let at = WallTime::from_millis(world.now.as_millis() + 100_000);
    world.send("q", Incoming { scheduled_at: Some(at), ..message("m") }).unwrap();
    for _ in 0..9 {
        world.idle(11_000);
    }
    assert_eq!(world.paths(), ["kept", "q"]);
    let receiver = new_receiver_id();
    let inbox: Arc<dyn Inbox> = Arc::new(Deaf);
    assert!(world.queue("q").register(receiver, inbox));
    world.idle(20_000);
    world.idle(20_000);
    assert_eq!(world.paths(), ["kept", "q"]);
    world.queue("q").unregister(receiver);
    world.idle(9_000);
    assert_eq!(world.paths(), ["kept", "q"]);
    world.idle(1_000);
    assert_eq!(world.paths(), ["kept"]);
}

#[test]
fn a_topic_is_used_when_its_subscriptions_are() {
    let mut world = World::new();
    world.declare(
        r#"{ "Topics": [{ "Name": "t", "Properties": { "AutoDeleteOnIdle": "PT10S" }, "Subscriptions": [
            { "Name": "a" }, { "Name": "b", "Properties": { "AutoDeleteOnIdle": "PT30S" } }] }] }"#,
    );
    world.idle(0);
    for _ in 0..5 {
        world.send("t", message("m")).unwrap();
        world.idle(8_000);
    }
    assert_eq!(world.paths(), ["t"]);
    for _ in 0..5 {
        world.idle(7_000);
        world.queue("t/Subscriptions/a").mark_used();
    }
    let topic = world.entities().find_topic("t").unwrap();
    assert_eq!(topic.subscriptions().len(), 1, "nobody has used the other one");
    world.idle(8_000);
    world.idle(10_000);
    assert_eq!(world.paths(), [""; 0]);
    assert!(world.entities().is_empty());
}

#[test]
fn the_time_begins_anew_at_a_start() {
    let stores = stores();
    let mut world = World::over(&stores, PLENTY);
    world.declare(QUEUES);
    world.idle(0);
    world.idle(9_000);
    let mut again = World::over(&stores, PLENTY);
    again.now = world.now;
    again.idle(0);
    again.idle(9_000);
    assert_eq!(again.paths(), ["kept", "q"]);
    again.idle(1_000);
    assert_eq!(again.paths(), ["kept"]);
}

#[test]
fn a_wall_clock_that_is_set_forward_deletes_nothing() {
    let world = World::new();
    world.declare(QUEUES);
    let at = |millis| WallTime::from_millis(millis);
    world.entities().delete_idle(MonoTime::from_millis(0), at(0));
    world.entities().delete_idle(MonoTime::from_millis(9_999), at(1_700_000_000_000));
    assert_eq!(world.paths(), ["kept", "q"]);
    world.entities().delete_idle(MonoTime::from_millis(10_000), at(0));
    assert_eq!(world.paths(), ["kept"]);
}

/// A receiver that is told things in vain.
#[derive(Debug)]
struct Deaf;

impl Inbox for Deaf {
    fn tell(&self, _: ReceiverId, _: Told) {}
}
