//! Entities are created, changed and deleted.

use super::*;

fn create(world: &World, definition: &QueueDefinition) -> Result<Arc<Queue>, EntityError> {
    world.entities().create_queue(definition, DeclaredBy::Admin, &mut Commits::default())
}

#[test]
fn an_entity_is_found_whatever_its_case_and_made_once() {
    let world = World::new();
    create(&world, &QueueDefinition::new("Orders")).unwrap();
    assert_eq!(world.queue("sb://h/ORDERS/$DeadLetterQueue").path(), "Orders");
    let again = create(&world, &QueueDefinition::new("orders")).unwrap_err();
    assert_eq!(again.to_string(), "queue \"Orders\" exists already");
    let topic = TopicDefinition::new("orders");
    let again = world.entities().create_topic(&topic, DeclaredBy::Admin, &mut Commits::default());
    assert_eq!(again.unwrap_err().to_string(), "queue \"Orders\" exists already");
    let broken = create(&world, &QueueDefinition::new("a b")).unwrap_err().to_string();
    assert!(broken.starts_with("\"a b\" is not the name of a queue"), "{broken}");
}

#[test]
fn a_tenant_has_only_so_many() {
    let world = World::new();
    for number in 0..12 {
        create(&world, &QueueDefinition::new(&format!("q{number}"))).unwrap();
    }
    let error = create(&world, &QueueDefinition::new("q")).unwrap_err();
    assert_eq!(error, EntityError::TooMany(12));
    world.entities().delete("Q1", &mut Commits::default()).unwrap();
    create(&world, &QueueDefinition::new("q")).unwrap();
}

#[test]
fn what_is_changed_holds_at_once_and_what_is_fixed_stays() {
    let world = World::new();
    let mut definition = QueueDefinition::new("q");
    let queue = create(&world, &definition).unwrap();
    definition.properties.max_delivery_count = 3;
    let mut commits = Commits::default();
    world.entities().update_queue(&definition, DeclaredBy::Admin, &mut commits).unwrap();
    assert!(!commits.is_empty(), "the change is stored");
    assert_eq!(queue.read(|entity| entity.properties().max_delivery_count), 3);
    definition.properties.requires_session = true;
    let error = world.entities().update_queue(&definition, DeclaredBy::Admin, &mut commits);
    assert_eq!(
        error.unwrap_err().to_string(),
        "queue \"q\": RequiresSession is false and cannot be changed. Keep it, or delete the entity with \
         all its messages and create it again"
    );
    definition.name = "other".into();
    let error = world.entities().update_queue(&definition, DeclaredBy::Admin, &mut commits);
    assert_eq!(error.unwrap_err().to_string(), "queue \"other\" could not be found");
}

#[test]
fn what_is_deleted_is_gone_and_its_receivers_are_told() {
    let world = World::new();
    let queue = create(&world, &QueueDefinition::new("q")).unwrap();
    let (ears, id) = (Arc::new(Ears::default()), new_receiver_id());
    assert!(queue.register(id, Arc::clone(&ears) as Arc<dyn Inbox>));
    world.send("q", message("m")).unwrap();
    let node = world.node("q");
    world.entities().delete("q", &mut Commits::default()).unwrap();
    assert_eq!(ears.heard(), [Told::Deleted]);
    assert!(!queue.register(id, ears), "nobody would tell it");
    let sent = node.send(Batch::from_buf([message("m")]), world.now, &mut Commits::default());
    assert_eq!(sent, Err(SendError::Gone));
    assert!(world.entities().is_empty());
    assert_eq!(world.shards.in_memory(), 0);
    let error = world.entities().delete("q", &mut Commits::default()).unwrap_err();
    assert_eq!(error.to_string(), "\"q\" could not be found");
}

#[test]
fn a_topic_takes_its_subscriptions_with_it() {
    let world = World::new();
    world.declare(
        r#"{ "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "s" }, { "Name": "u" }] }] }"#,
    );
    assert_eq!((world.entities().len(), world.entities().list().len()), (3, 1));
    world.entities().delete("t/Subscriptions/s", &mut Commits::default()).unwrap();
    let topic = world.entities().find_topic("t").unwrap();
    assert_eq!(topic.subscriptions().len(), 1);
    world.entities().delete("t", &mut Commits::default()).unwrap();
    assert!(world.entities().is_empty());
}

#[test]
fn a_configuration_wins_over_what_there_is_but_not_over_what_is_fixed() {
    let world = World::new();
    let config = r#"{ "Queues": [{ "Name": "q", "Properties": { "MaxDeliveryCount": 5 } }],
        "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "s", "Properties": { "LockDuration": "PT9S" },
            "Rules": [{ "Name": "none", "Properties": { "FilterType": "False" } }] }] }] }"#;
    world.declare(config);
    let changed = QueueDefinition::new("q");
    world.entities().update_queue(&changed, DeclaredBy::Admin, &mut Commits::default()).unwrap();
    world.declare(config);
    let queue = world.queue("q");
    assert_eq!(queue.configured().declared_by, DeclaredBy::Configuration);
    assert_eq!(queue.read(|entity| entity.properties().max_delivery_count), 5);
    assert_eq!(world.queue("t/Subscriptions/s").configured().rules.len(), 1);
    let error = world.try_declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "RequiresSession": true } }] }"#,
    );
    assert!(error.unwrap_err().contains("RequiresSession is false and cannot be changed"));
    let error = world.try_declare(r#"{ "Topics": [{ "Name": "q" }] }"#);
    assert_eq!(error.unwrap_err(), "queue \"q\" exists already");
}

#[test]
fn nothing_forwards_to_where_nothing_is() {
    let world = World::new();
    let mut definition = QueueDefinition::new("q");
    definition.properties.forward_to = "sb://h/Target".into();
    let error = create(&world, &definition).unwrap_err().to_string();
    assert_eq!(
        error,
        "queue \"q\": ForwardTo is \"sb://h/Target\", but there is no queue or topic of that name"
    );
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "ForwardTo": "target" } }, { "Name": "target" }] }"#,
    );
    assert!(world.queue("q").forwards());
}

#[test]
fn rules_come_and_go() {
    let world = World::new();
    world.declare(r#"{ "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "s" }] }] }"#);
    let (subscription, mut commits) = (world.queue("t/subscriptions/s"), Commits::default());
    let names = || -> Vec<_> {
        subscription.configured().rules.iter().map(|rule| rule.name.to_string()).collect()
    };
    assert_eq!(names(), ["$Default"]);
    let rule: RuleDefinition = serde_json::from_str(
        r#"{ "Name": "r", "Properties": { "SqlFilter": { "SqlExpression": "a = 1" } } }"#,
    )
    .unwrap();
    let entities = world.entities();
    entities.add_rule(&subscription, &rule, &mut commits).unwrap();
    let twice = entities.add_rule(&subscription, &rule, &mut commits).unwrap_err();
    assert_eq!(twice.to_string(), "rule \"r\" exists already");
    entities.remove_rule(&subscription, "$default", &mut commits).unwrap();
    assert_eq!(names(), ["r"]);
    let gone = entities.remove_rule(&subscription, "$Default", &mut commits).unwrap_err();
    assert_eq!(gone.to_string(), "rule \"$Default\" could not be found");
}
