//! Messages are sent to queues and received from them.

use barid_core::entity::{Accept, Accepted, Outcome, Refusal};

use super::*;

#[test]
fn what_is_sent_is_received_and_accepted_when_it_is_durable() {
    let world = World::new();
    world.declare(r#"{ "Queues": [{ "Name": "q" }] }"#);
    let mut commits = Commits::default();
    let numbers =
        world.node("q").send(Batch::from_buf([message("m")]), world.now, &mut commits).unwrap();
    assert_eq!(&numbers[..], [1]);
    assert!(!commits.is_empty() && !world.shards.sources().are_done(&commits));
    let [delivery] = &*world.take("q", Part::Main) else {
        panic!("delivered before it is durable")
    };
    world.settle();
    assert!(world.shards.sources().are_done(&commits));
    let mut commits = Commits::default();
    let token = delivery.token;
    world
        .queue("q")
        .with(&mut commits, |entity, fx| {
            entity.settle(Part::Main, token, Outcome::Complete, world.now, fx)
        })
        .unwrap();
    assert!(!commits.is_empty());
    assert_eq!(world.texts("q", Part::Main), [""; 0]);
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all() {
    let world = World::new();
    world.declare(r#"{ "Queues": [{ "Name": "q", "Properties": { "RequiresSession": true } }] }"#);
    let batch = Batch::from_vec(vec![of_session("s", "1"), message("2")]);
    let refused = world.node("q").send(batch, world.now, &mut Commits::default());
    assert_eq!(refused, Err(Refusal::SessionIdMissing.into()));
    assert_eq!(world.texts("q", Part::Main), [""; 0]);
    let batch = Batch::from_vec(vec![of_session("s", "1"), of_session("t", "2")]);
    world.node("q").send(batch, world.now, &mut Commits::default()).unwrap();
    assert_eq!(world.texts("q", Part::Main), ["1", "2"]);
}

#[test]
fn a_repetition_waits_for_what_it_repeats() {
    let world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "RequiresDuplicateDetection": true } }] }"#,
    );
    let mut repeated = message("m");
    repeated.message_id = Some("id".into());
    assert_eq!(world.send("q", repeated.clone()), Ok(1));
    let mut commits = Commits::default();
    let numbers = world.node("q").send(Batch::from_buf([repeated]), world.now, &mut commits);
    assert_eq!(numbers.as_deref(), Ok(&[0][..]));
    assert!(!commits.is_empty() && !world.shards.sources().are_done(&commits));
    world.settle();
    assert!(world.shards.sources().are_done(&commits));
}

#[test]
fn a_receiver_that_waits_is_told() {
    let mut world = World::new();
    world.declare(
        r#"{ "Queues": [{ "Name": "p" }, { "Name": "q", "Properties": { "RequiresSession": true,
            "LockDuration": "PT5S" } }] }"#,
    );
    let (ears, id) = (Arc::new(Ears::default()), new_receiver_id());
    let mut commits = Commits::default();
    let plain = world.queue("p");
    plain.register(id, Arc::clone(&ears) as Arc<dyn Inbox>);
    plain.with(&mut commits, |entity, fx| {
        entity.open(id, Part::Main, Mode::PeekLock).unwrap();
        entity.take(id, 1, world.now, fx, &mut Vec::new()).unwrap();
    });
    assert_eq!(ears.heard(), []);
    world.send("p", message("m")).unwrap();
    assert_eq!(ears.heard(), [Told::Ready]);

    let queue = world.queue("q");
    let wait = |id, until| {
        queue.register(id, Arc::clone(&ears) as Arc<dyn Inbox>);
        let accept = Accept::Next { until };
        let accepted = queue.with(&mut Commits::default(), |entity, fx| {
            entity.accept(id, Mode::PeekLock, accept, world.now, fx)
        });
        assert_eq!(accepted, Ok(Accepted::Waiting));
    };
    let until = WallTime::from_millis(world.now.as_millis() + 1_000);
    wait(new_receiver_id(), until);
    assert!(queue.wakes_at(until), "a timer is set");
    world.sleep(1_000);
    assert_eq!(ears.heard(), [Told::TimedOut]);
    let until = WallTime::from_millis(world.now.as_millis() + 60_000);
    queue.register(new_receiver_id(), Arc::clone(&ears) as Arc<dyn Inbox>);
    let id = new_receiver_id();
    queue.register(id, Arc::clone(&ears) as Arc<dyn Inbox>);
    queue
        .with(&mut Commits::default(), |entity, fx| {
            entity.accept(id, Mode::PeekLock, Accept::Next { until }, world.now, fx)
        })
        .unwrap();
    world.send("q", of_session("s", "m")).unwrap();
    let locked_until = WallTime::from_millis(world.now.as_millis() + 5_000);
    assert_eq!(ears.heard(), [Told::Granted { session: "s".into(), locked_until }]);
    world.sleep(4_999);
    assert_eq!(ears.heard(), []);
    world.sleep(1);
    assert_eq!(ears.heard(), [Told::LockLost]);
}

#[test]
fn what_memory_has_no_room_for_is_read_back() {
    let world = World::over(&stores(), 0);
    world.declare(r#"{ "Queues": [{ "Name": "q" }] }"#);
    world.send("q", message("m")).unwrap();
    let queue = world.queue("q");
    let body = || queue.shard().body(queue.tenant(), "t", queue.number(), 1).unwrap();
    assert!(body().is_some(), "before it is written");
    let [entry] = &*world.entries("q", Part::Main) else { panic!("one") };
    assert_eq!((entry.body.bytes.as_ref(), world.shards.in_memory()), (None, 0));
    assert_eq!(body(), Some(message("m").bytes), "from the store");
    let ears = Arc::new(Ears::default());
    let id = new_receiver_id();
    queue.fetch_bodies(id, vec![(70, 1), (71, 2)], Arc::clone(&ears) as _);
    world.settle();
    assert_eq!(ears.heard(), [Told::Bodies(vec![(70, Some(message("m").bytes)), (71, None)])]);
}
