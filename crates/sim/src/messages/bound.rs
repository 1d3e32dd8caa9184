//! Queues that bindings fill with the messages that clients publish.

use std::collections::BTreeMap;

use barid_core::entity::Part;
use barid_engine::bindings::{Binding, Template};
use barid_engine::entities::{
    Definitions, Node, QueueDefinition, QueueProperties, SubscriptionDefinition,
    SubscriptionProperties, TopicDefinition, TopicProperties, key,
};
use mqtt_proto::topic;

use crate::packets::messages::{MessageNumber, TOPICS};
use crate::process::{Process, TENANT};

/// Topic filter of the bindings.
const FILTER: &str = "a/#";

/// The queues, and the number of copies of each message that they get. The first one gets a copy by its own
/// binding, and another by a subscription that forwards. The second one is itself a subscription.
pub const QUEUES: [(&str, usize); 2] = [("inbox", 2), ("fan/subscriptions/left", 1)];

/// Number of copies of each message in each queue.
pub type Found = BTreeMap<(usize, MessageNumber), usize>;

/// Whether the bindings send messages of a topic to the queues.
pub fn takes(topic: usize) -> bool {
    topic::matches(FILTER, TOPICS[topic])
}

/// Declares the queues and the bindings.
pub fn declare(process: &Process) {
    let subscription = |name: &str, forward_to: &str| SubscriptionDefinition {
        name: name.into(),
        properties: SubscriptionProperties {
            forward_to: forward_to.into(),
            ..SubscriptionProperties::default()
        },
        rules: Vec::new(),
    };
    let fan = TopicDefinition {
        name: "fan".into(),
        properties: TopicProperties::default(),
        subscriptions: vec![subscription("left", ""), subscription("right", "inbox")],
    };
    let inbox = QueueDefinition { name: "inbox".into(), properties: QueueProperties::default() };
    let definitions = Definitions { queues: vec![inbox], topics: vec![fan] };
    let declared = [(TENANT.to_owned(), definitions)];
    process.engine.declare(declared).expect("it can be declared");
    let binding = |name: &str, queue: Option<&str>, topic: Option<&str>| Binding {
        name: name.into(),
        tenant: TENANT.into(),
        filter: Some(FILTER.into()),
        queue: queue.map(Into::into),
        topic: topic.map(Into::into),
        // The session id is the number of the message, by which `found` tells messages apart.
        session: Some(Template::parse("{property:n}").expect("it is one")),
        from_queue: None,
        from_subscription: None,
        publish: None,
        qos: None,
        retain: false,
    };
    let bindings = vec![binding("inbox", Some("inbox"), None), binding("fan", None, Some("fan"))];
    process.tenant().bindings.configure(bindings);
}

/// Counts the copies of each message in each queue.
pub fn found(process: &Process) -> Found {
    let tenant = process.tenant();
    let entities = tenant.entities(&process.engine.alarm);
    let mut found = Found::new();
    for (index, (path, _)) in QUEUES.iter().enumerate() {
        let Some(Node::Queue(queue)) = entities.find_key(&key(path)) else {
            unreachable!("it was declared as a queue")
        };
        queue.read(|entity| {
            entity.peek(Part::Main, 0, usize::MAX, None, |entry| {
                let number = entry.session.as_ref().and_then(|number| number.parse().ok());
                let number = number.expect("bindings give messages their number as session");
                *found.entry((index, number)).or_default() += 1;
                true
            });
        });
    }
    found
}
