//! Recovery of entities from the stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::durable::EntityRecord;
use barid_core::durable::records::RecordError;
use barid_core::entity::Entity;
use barid_core::ids::QueueNumber;

use super::configured::{Configured, Definition, Stored};
use super::definition::{QueueProperties, TopicProperties};
use super::path::{self, split_subscription};
use super::queue::Queue;
use super::registry::{Entities, Node};
use super::topic::Topic;
use crate::durable::{Commits, DurableShard, Shards};

/// The entities found in one store. Subscriptions are [joined](Recovering::join) to their topics when the whole
/// store has been read.
#[derive(Default)]
pub struct Recovering {
    queues: BTreeMap<QueueNumber, Arc<Queue>>,
}

impl Recovering {
    /// Adds an entity that was found in a shard.
    ///
    /// # Errors
    /// [`RecordError`] if its definition cannot be read.
    pub fn entity(
        &mut self,
        entities: &Entities,
        shard: &Arc<DurableShard>,
        path: &str,
        record: EntityRecord,
    ) -> Result<(), RecordError> {
        let EntityRecord { queue: number, definition } = record;
        let stored: Stored = serde_json::from_slice(&definition)
            .map_err(|_| RecordError::Malformed("the definition of an entity"))?;
        let (by, times) = (stored.declared_by, stored.times);
        let configured = match stored.definition {
            Definition::Queue(queue) => Configured::queue(queue, by),
            Definition::Topic(topic) => Configured::topic(topic, by),
            // The properties of the topic are applied when the topic has been read.
            Definition::Subscription(subscription) => {
                Configured::subscription(subscription, &TopicProperties::default(), by)
                    .map_err(|_| RecordError::Malformed("a rule of a subscription"))?
            }
        };
        let of = (Arc::clone(shard), number);
        let queue = Queue::recover(entities.home(), path, of, (configured, times));
        self.queues.insert(number, queue);
        Ok(())
    }

    /// Restores a record of an entity. Does nothing if the entity was not found or could not be read.
    pub fn restore(&self, queue: QueueNumber, restore: impl FnOnce(&mut Entity)) {
        if let Some(queue) = self.queues.get(&queue) {
            queue.restore(restore);
        }
    }

    /// Number of entities found.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Discards the entities, because the shard is not opened.
    pub fn discard(self) {
        self.queues.values().for_each(|queue| queue.leave());
    }

    /// Adds the entities to their tenants. A subscription without a topic is deleted: the process ended before the
    /// deletion of the topic was complete.
    pub fn join(self) {
        let mut commits = Commits::default();
        let (subscriptions, others): (Vec<_>, Vec<_>) =
            self.queues.into_values().partition(|queue| queue.is_subscription());
        for queue in &others {
            let node = match queue.configured().definition {
                Definition::Topic(_) => Node::Topic(Arc::new(Topic::new(Arc::clone(queue)))),
                _ => Node::Queue(Arc::clone(queue)),
            };
            entities_of(queue).put_recovered(node);
        }
        for queue in &subscriptions {
            let topic = split_subscription(queue.key())
                .and_then(|(topic, _)| entities_of(queue).find_topic(topic));
            match topic {
                Some(topic) => adopt(&topic, queue),
                None => queue.delete(&mut commits),
            }
        }
        for queue in others.iter().chain(&subscriptions) {
            queue.start(&mut commits);
            queue.move_on();
        }
    }
}

/// Joins a subscription to its topic, whose properties it inherits.
fn adopt(topic: &Topic, queue: &Arc<Queue>) {
    let own = queue.configured();
    let properties = topic.configured().topic_properties().cloned();
    if let (Definition::Subscription(definition), Some(properties)) = (&own.definition, properties)
    {
        let configured = Configured {
            properties: QueueProperties::of_subscription(&properties, &definition.properties),
            ..Configured::clone(&own)
        };
        queue.adopt(configured);
    }
    topic.add(Arc::clone(queue));
    entities_of(queue).put_recovered(Node::Queue(Arc::clone(queue)));
}

/// Returns the shard of an entity of the tenant of this name, by the path that the entity is stored under.
pub fn shard_of_path(shards: &Shards, tenant: &str, path: &str) -> Arc<DurableShard> {
    let key = path::key(path);
    let of_shard = split_subscription(&key).map_or(&*key, |(topic, _)| topic);
    shards.of(tenant, of_shard)
}

fn entities_of(queue: &Queue) -> Arc<Entities> {
    queue.entities().expect("tenants are not removed before all shards are open")
}
