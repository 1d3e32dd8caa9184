//! The process ends, and another one starts over the same stores.

use std::ops::ControlFlow;

use barid_core::durable::keys::{EntityKey, encode_queue_prefix};
use barid_core::entity::{Accept, Outcome};
use barid_store::Keyspace;

use super::*;

#[test]
fn entities_and_what_is_in_them_come_back() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    world.declare(
        r#"{ "Queues": [{ "Name": "Q", "Properties": { "RequiresSession": true, "LockDuration": "PT7S" } }],
            "Topics": [{ "Name": "T", "Properties": { "DefaultMessageTimeToLive": "PT1H" },
                "Subscriptions": [{ "Name": "S" }, { "Name": "None", "Rules": [
                    { "Name": "r", "Properties": { "FilterType": "False" } }] }] }] }"#,
    );
    world.send("q", of_session("s", "1")).unwrap();
    world.send("q", of_session("s", "2")).unwrap();
    world.send("t", message("3")).unwrap();
    let at = WallTime::from_millis(world.now.as_millis() + 5_000);
    world.send("t", Incoming { scheduled_at: Some(at), ..message("4") }).unwrap();
    let id = new_receiver_id();
    world.queue("q").with(&mut Commits::default(), |entity, fx| {
        let accept = Accept::Session("s".into());
        entity.accept(id, Mode::PeekLock, accept, world.now, fx).unwrap();
        entity.set_state(id, Some([7].into()), world.now, fx).unwrap();
        let mut out = Vec::new();
        entity.take(id, 1, world.now, fx, &mut out).unwrap();
        entity.settle(Part::Main, out[0].token, Outcome::Complete, world.now, fx).unwrap();
    });
    world.settle();
    drop(world);

    let mut world = World::over(&stores, PLENTY);
    assert_eq!(world.texts("q", Part::Main), ["2"]);
    let queue = world.queue("q");
    assert_eq!(queue.path(), "Q");
    assert_eq!(queue.configured().properties.lock_duration, IsoDuration::seconds(7));
    assert_eq!(queue.read(|entity| entity.state("s")).as_deref(), Some(&[7][..]));
    assert_eq!(world.texts("t/subscriptions/s", Part::Main), ["3"]);
    assert_eq!(world.texts("t/subscriptions/none", Part::Main), [""; 0]);
    let subscription = world.queue("t/subscriptions/s");
    let time_to_live = subscription.read(|entity| entity.properties().default_time_to_live);
    assert_eq!(time_to_live, Some(std::time::Duration::from_secs(3_600)), "what the topic says");
    world.sleep(5_000);
    assert_eq!(world.texts("t/subscriptions/s", Part::Main), ["3", "4"]);
}

#[test]
fn numbers_go_on_where_they_were_after_an_orderly_end_and_further_on_after_a_crash() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    world.declare(r#"{ "Queues": [{ "Name": "q" }] }"#);
    assert_eq!(world.send("q", message("1")), Ok(1));
    world.entities().note_numbers(&mut Commits::default());
    world.settle();
    drop(world);

    let world = World::over(&stores, PLENTY);
    assert_eq!(world.send("q", message("2")), Ok(2));
    world.settle();
    drop(world);

    let world = World::over(&stores, PLENTY);
    assert!(world.send("q", message("3")).unwrap() > 3, "it may have given many more");
    assert_eq!(world.texts("q", Part::Main), ["1", "2", "3"]);
}

/// Moves an entity into another shard, where earlier versions put it. Without `forgets`, it also stays where it
/// was.
fn misplace(stores: &[Arc<dyn Store>], of: &str, forgets: bool) {
    let entity = |store: &Arc<dyn Store>| {
        let mut found = None;
        let scanned = store.scan(keys::ENTITIES, &[], &[], &mut |key, value| {
            if EntityKey::decode(key).unwrap().path == of {
                found = Some((key.to_vec(), EntityRecord::decode(value).unwrap().queue));
            }
            ControlFlow::Continue(())
        });
        scanned.map(|()| found).unwrap()
    };
    let at = stores.iter().position(|store| entity(store).is_some()).unwrap();
    let (from, to) = (&stores[at], &stores[(at + 1) % stores.len()]);
    let (entity, queue) = entity(from).unwrap();
    let mut prefix = Vec::new();
    encode_queue_prefix("t", queue, &mut prefix);
    for keyspace in (keys::ENTITIES.0..=keys::QUEUE_NUMBERS.0).map(Keyspace) {
        let prefix = if keyspace == keys::ENTITIES { &entity } else { &prefix };
        let (mut copy, mut removal) = (barid_store::Batch::new(), barid_store::Batch::new());
        let scanned = from.scan(keyspace, prefix, &[], &mut |key, value| {
            copy.put(keyspace, key, value);
            removal.remove(keyspace, key);
            ControlFlow::Continue(())
        });
        scanned.unwrap();
        to.commit(&copy).unwrap();
        if forgets {
            from.commit(&removal).unwrap();
        }
    }
}

#[test]
fn subscriptions_of_earlier_versions_come_to_their_topics() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    world.declare(r#"{ "Topics": [{ "Name": "T", "Subscriptions": [{ "Name": "S" }] }] }"#);
    world.send("t", message("1")).unwrap();
    world.send("t", message("2")).unwrap();
    let number = world.queue("t/subscriptions/s").number();
    world.settle();
    drop(world);

    let mut texts = vec!["1", "2"];
    // In the second round, the process has ended when everything was in the shard of the topic, and still in the
    // other shard as well.
    for (forgets, more) in [(true, "3"), (false, "4")] {
        misplace(&stores, "T/Subscriptions/S", forgets);
        let shards = Shards::new(Storage::local(&stores), PLENTY);
        assert_eq!(place_subscriptions(&shards).unwrap(), 1);
        assert_eq!(place_subscriptions(&shards).unwrap(), 0);
        drop(shards);

        let world = World::over(&stores, PLENTY);
        assert_eq!(world.texts("t/subscriptions/s", Part::Main), texts);
        let subscription = world.queue("t/subscriptions/s");
        assert_eq!(subscription.number(), number);
        assert_eq!(subscription.shard().index(), world.queue("t").shard().index());
        world.send("t", message(more)).unwrap();
        texts.push(more);
        assert_eq!(world.texts("t/subscriptions/s", Part::Main), texts);
        world.settle();
    }
}

#[test]
fn a_shard_remembers_the_number_of_a_subscription_that_it_had() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    world.declare(r#"{ "Topics": [{ "Name": "T", "Subscriptions": [{ "Name": "S" }] }] }"#);
    world.settle();
    let home = world.queue("t").shard().index();
    let other = (home + 1) % 3;
    let number = world.shards.get(other).change().new_queue_number();
    drop(world);

    let key = |path| {
        let mut key = Vec::new();
        EntityKey { tenant: "t", path }.encode(&mut key);
        key
    };
    let definition = stores[usize::from(home)].get(keys::ENTITIES, &key("T/Subscriptions/S"));
    let definition = EntityRecord::decode(&definition.unwrap().unwrap()).unwrap().definition;
    let mut record = Vec::new();
    EntityRecord { queue: number, definition }.encode(&mut record);
    let mut batch = barid_store::Batch::new();
    batch.put(keys::ENTITIES, &key("T/Subscriptions/Old"), &record);
    stores[usize::from(other)].commit(&batch).unwrap();
    assert_eq!(place_subscriptions(&Shards::new(Storage::local(&stores), PLENTY)).unwrap(), 1);

    let world = World::over(&stores, PLENTY);
    assert_eq!(world.queue("t/subscriptions/old").number(), number);
    assert!(world.shards.get(other).change().new_queue_number() > number);
}

#[test]
fn what_is_deleted_does_not_come_back() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    let config = r#"{ "Queues": [{ "Name": "q" }],
        "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "a" }, { "Name": "b" }] }] }"#;
    world.declare(config);
    world.send("q", message("1")).unwrap();
    world.send("t", message("2")).unwrap();
    world.settle();
    for path in ["q", "t/Subscriptions/a"] {
        world.entities().delete(path, &mut Commits::default()).unwrap();
    }
    world.settle();
    drop(world);

    let world = World::over(&stores, PLENTY);
    assert_eq!(world.entities().len(), 2);
    world.declare(config);
    assert_eq!(world.send("q", message("3")), Ok(1), "another queue of this name");
    assert_eq!(world.texts("t/Subscriptions/a", Part::Main), [""; 0]);
    assert_eq!(world.texts("t/Subscriptions/b", Part::Main), ["2"]);
}

#[test]
fn a_subscription_whose_topic_has_gone_goes() {
    let stores = stores();
    let world = World::over(&stores, PLENTY);
    world.declare(r#"{ "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "s" }] }] }"#);
    world.send("t", message("m")).unwrap();
    // As if the process had ended between the batches of two shards.
    world.entities().find_topic("t").unwrap().held().delete(&mut Commits::default());
    world.settle();
    drop(world);

    for _ in 0..2 {
        let world = World::over(&stores, PLENTY);
        assert!(world.entities().is_empty());
        let mut left = 0;
        for shard in world.shards.iter() {
            for keyspace in [keys::ENTITIES, keys::QUEUE_ENTRIES, keys::QUEUE_BODIES] {
                let count = &mut |_: &[u8], _: &[u8]| {
                    left += 1;
                    std::ops::ControlFlow::Continue(())
                };
                shard.store().scan(keyspace, &[], &[], count).unwrap();
            }
        }
        assert_eq!(left, 0);
    }
}
