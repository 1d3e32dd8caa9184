//! All entities of a tenant: lookup, creation, change and deletion.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use barid_core::ids::{ShardIndex, TenantNumber};
use barid_core::time::{MonoTime, WallTime};
use hashbrown::HashSet;
use thiserror::Error;
use tracing::info;

use super::alarm::Alarm;
use super::configured::{Configured, DeclaredBy, Definition};
use super::definition::{
    DefinitionError, Definitions, QueueDefinition, QueueProperties, RULES_MAX,
    SubscriptionDefinition, SubscriptionProperties, TopicDefinition, TopicProperties,
};
use super::holding::{AdmitsBytes, Holding};
use super::idleness::is_idle_too_long;
use super::path::{self, Address, Kind, subscription_path};
use super::queue::{Home, Queue, shard_of};
use super::rule::RuleDefinition;
use super::topic::Topic;
use crate::durable::{Commits, DurableShard, Shards};
use crate::random::Random;
use crate::sync::{Mutex, RwLock};

/// An entity that an address can name. A subscription is a queue as well.
#[derive(Clone, Debug)]
pub enum Node {
    /// A queue or a subscription.
    Queue(Arc<Queue>),
    /// A topic.
    Topic(Arc<Topic>),
}

/// Returns whether the tenant may have so many entities; if not, how many it may have.
pub type Admits = Box<dyn Fn(usize) -> Result<(), usize> + Send + Sync>;

/// The entities of one tenant.
pub struct Entities {
    home: Home,
    admits: Admits,
    /// The entities, including subscriptions, by canonical key.
    nodes: RwLock<BTreeMap<Box<str>, Node>>,
    /// Held while an entity is created, changed or deleted: one at a time.
    changing: Mutex<()>,
}

/// Reason for which an entity is not created, changed or deleted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EntityError {
    /// The definition is invalid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The name exists already.
    #[error("{0} exists already")]
    Exists(Box<str>),
    /// The name does not exist.
    #[error("{0} could not be found")]
    NotFound(Box<str>),
    /// The property is fixed when an entity is created.
    #[error(
        "{entity}: {property} is {is} and cannot be changed. Keep it, or delete the entity with all \
         its messages and create it again"
    )]
    Fixed {
        /// The entity.
        entity: Box<str>,
        /// The property.
        property: &'static str,
        /// The current value.
        is: bool,
    },
    /// The entity would forward to an entity that does not exist.
    #[error("{entity}: {property} is {target:?}, but there is no queue or topic of that name")]
    NoTarget {
        /// The entity.
        entity: Box<str>,
        /// The property that names the target.
        property: &'static str,
        /// The target.
        target: Box<str>,
    },
    /// The tenant has the maximum number of entities.
    #[error("the maximum of {0} queues, topics and subscriptions is reached (limits.max_entities)")]
    TooMany(usize),
    /// The shard that the entity belongs to, or would belong to, is closed.
    #[error("the shard of {0} is closed: try again when it is open")]
    Closed(Box<str>),
}

impl Node {
    /// The entity itself; for a topic, the queue that holds its scheduled messages.
    pub fn entity(&self) -> &Arc<Queue> {
        match self {
            Self::Queue(queue) => queue,
            Self::Topic(topic) => topic.held(),
        }
    }

    /// Maximum size of a message, in bytes.
    pub fn max_message_size(&self) -> usize {
        self.entity().max_message_size()
    }

    /// The entity's path, as it was declared.
    pub fn path(&self) -> &str {
        self.entity().path()
    }

    /// If the shard of the entity was closed, replaces the node by the present one with the same key.
    pub fn look_up(&mut self) {
        let present = |queue: &Queue| queue.entities()?.find_key(queue.key());
        if self.entity().is_closed()
            && let Some(present) = present(self.entity())
        {
            *self = present;
        }
    }
}

impl Entities {
    /// Creates the collection of a tenant's entities, which is empty.
    pub fn new(
        (tenant, tenant_name): (TenantNumber, &str),
        shards: &Arc<Shards>,
        alarm: &Arc<dyn Alarm>,
        random: Random,
        (admits, admits_bytes): (Admits, AdmitsBytes),
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            home: Home {
                tenant,
                tenant_name: tenant_name.into(),
                shards: Arc::clone(shards),
                alarm: Arc::clone(alarm),
                random,
                entities: Weak::clone(me),
                holding: Arc::new(Holding::new(admits_bytes)),
            },
            admits,
            nodes: RwLock::default(),
            changing: Mutex::default(),
        })
    }

    /// Bytes of all messages, sessions and states in the entities, as the size of an entity counts them.
    pub fn bytes(&self) -> usize {
        self.home.holding.bytes()
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the entity that an address names. The address's part and management flag are left to the caller.
    pub fn find(&self, address: &Address) -> Option<Node> {
        self.find_key(&address.entity)
    }

    /// Returns the entity with this canonical key.
    pub fn find_key(&self, key: &str) -> Option<Node> {
        self.nodes.read().get(key).cloned()
    }

    /// Whether an entity has this canonical key, or a key below it.
    pub fn is_path(&self, key: &str) -> bool {
        let nodes = self.nodes.read();
        let below = format!("{key}/");
        let mut behind = nodes.range::<str, _>((Bound::Included(&*below), Bound::Unbounded));
        nodes.contains_key(key) || behind.next().is_some_and(|(next, _)| next.starts_with(&below))
    }

    /// Returns the topic with this canonical key.
    pub fn find_topic(&self, key: &str) -> Option<Arc<Topic>> {
        match self.find_key(key) {
            Some(Node::Topic(topic)) => Some(topic),
            _ => None,
        }
    }

    /// Returns all queues and topics, ordered by key. Subscriptions are in [`Topic::subscriptions`].
    pub fn list(&self) -> Vec<Node> {
        let nodes = self.nodes.read();
        nodes.values().filter(|node| !node.entity().is_subscription()).cloned().collect()
    }

    /// Does everything that is due although its timer has not expired. Timers use a monotonic clock, and the wall
    /// clock may have been set forward.
    pub fn wake_overdue(&self, now: WallTime) {
        // Not under the lock: due work may look up other entities.
        let overdue: Vec<_> = {
            let nodes = self.nodes.read();
            let entities = nodes.values().map(Node::entity);
            entities.filter_map(|queue| Some((Arc::clone(queue), queue.overdue(now)?))).collect()
        };
        for (queue, at) in overdue {
            queue.wake(at, now);
        }
    }

    /// Deletes the entities that nobody has used for the duration in their `AutoDeleteOnIdle`. Must be called
    /// regularly, because it also notes when entities are used.
    pub fn delete_idle(&self, now: MonoTime, wall: WallTime) {
        let nodes: Vec<_> = self.nodes.read().values().cloned().collect();
        nodes.iter().for_each(|node| node.entity().sweep(now, wall));
        for node in nodes.iter().filter(|node| is_idle_too_long(node, now)) {
            if self.delete_unused(node, &mut Commits::default()) {
                let (tenant, entity) = (&*self.home.tenant_name, node.path());
                info!(tenant, entity, "deleted an entity that nobody has used (AutoDeleteOnIdle)");
            }
        }
    }

    /// Deletes an entity unless it was used since the last sweep.
    fn delete_unused(&self, node: &Node, commits: &mut Commits) -> bool {
        match node {
            Node::Topic(topic) => {
                let is_used = |queue: &Arc<Queue>| queue.is_used();
                let any = is_used(topic.held()) || topic.subscriptions().iter().any(is_used);
                !any && self.delete(topic.path(), commits).is_ok()
            }
            Node::Queue(queue) => {
                let _changing = self.changing.lock();
                if !queue.shard().is_open() || !queue.delete_unused(commits) {
                    return false;
                }
                self.nodes.write().remove(queue.key());
                let topic = path::split_subscription(queue.key());
                if let Some(topic) = topic.and_then(|(topic, _)| self.find_topic(topic)) {
                    topic.remove(queue.key());
                }
                true
            }
        }
    }

    /// Number of entities, including subscriptions.
    pub fn len(&self) -> usize {
        self.nodes.read().len()
    }

    /// Whether there are no entities.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn create_queue(
        &self,
        definition: &QueueDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        definition.check()?;
        let _changing = self.changing.lock();
        self.check_new(&definition.name, 1)?;
        self.check_targets(&definition.properties, &name_of(Kind::Queue, &definition.name))?;
        Ok(self.insert_queue(definition, by, commits))
    }

    /// Changes the properties of a queue.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn update_queue(
        &self,
        definition: &QueueDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        definition.check()?;
        let _changing = self.changing.lock();
        self.check_open(&definition.name)?;
        let name = name_of(Kind::Queue, &definition.name);
        let queue = self.queue(&definition.name)?;
        check_fixed(&queue, &definition.properties, &name)?;
        self.check_targets(&definition.properties, &name)?;
        queue.configure(Configured::queue(definition.clone(), by), commits);
        Ok(queue)
    }

    /// Creates a topic with its subscriptions.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn create_topic(
        &self,
        definition: &TopicDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Topic>, EntityError> {
        definition.check()?;
        let _changing = self.changing.lock();
        self.check_new(&definition.name, 1 + definition.subscriptions.len())?;
        for subscription in &definition.subscriptions {
            self.check_subscription_targets(&definition.name, subscription)?;
        }
        let topic = self.insert_topic(definition, by, commits);
        for subscription in &definition.subscriptions {
            self.insert_subscription(&topic, subscription, by, commits)?;
        }
        Ok(topic)
    }

    /// Changes the properties of a topic. The subscriptions in the definition are ignored.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn update_topic(
        &self,
        definition: &TopicDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Topic>, EntityError> {
        TopicDefinition { subscriptions: Vec::new(), ..definition.clone() }.check()?;
        let _changing = self.changing.lock();
        self.check_open(&definition.name)?;
        let topic = self.topic(&definition.name)?;
        self.change_topic(&topic, definition, by, commits)?;
        Ok(topic)
    }

    /// Creates a subscription of a topic.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn create_subscription(
        &self,
        topic: &str,
        definition: &SubscriptionDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        definition.check(topic)?;
        let _changing = self.changing.lock();
        let topic = self.topic(topic)?;
        self.check_new(&subscription_path(topic.path(), &definition.name), 1)?;
        self.check_subscription_targets(topic.path(), definition)?;
        self.insert_subscription(&topic, definition, by, commits)
    }

    /// Changes the properties of a subscription, and its rules if the definition has any.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn update_subscription(
        &self,
        topic: &str,
        definition: &SubscriptionDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        definition.check(topic)?;
        let _changing = self.changing.lock();
        self.check_open(topic)?;
        let topic = self.topic(topic)?;
        self.check_subscription_targets(topic.path(), definition)?;
        self.change_subscription(&topic, definition, by, commits)
    }

    /// Deletes a queue, a subscription, or a topic with its subscriptions, and all their messages.
    ///
    /// # Errors
    /// [`EntityError::NotFound`] or [`EntityError::Closed`].
    pub fn delete(&self, written: &str, commits: &mut Commits) -> Result<(), EntityError> {
        let _changing = self.changing.lock();
        self.check_open(written)?;
        let key = path::key(written);
        let node = self.nodes.write().remove(&key);
        match node.ok_or_else(|| EntityError::NotFound(format!("{written:?}").into()))? {
            Node::Topic(topic) => {
                for subscription in topic.subscriptions().iter() {
                    self.nodes.write().remove(subscription.key());
                    topic.remove(subscription.key());
                    subscription.delete(commits);
                }
                topic.held().delete(commits);
            }
            Node::Queue(queue) => {
                let topic = path::split_subscription(&key);
                if let Some(topic) = topic.and_then(|(topic, _)| self.find_topic(topic)) {
                    topic.remove(&key);
                }
                queue.delete(commits);
            }
        }
        Ok(())
    }

    /// Adds a rule to a subscription.
    ///
    /// # Errors
    /// [`EntityError`]. Nothing has changed then.
    pub fn add_rule(
        &self,
        subscription: &Queue,
        rule: &RuleDefinition,
        commits: &mut Commits,
    ) -> Result<(), EntityError> {
        rule.check()?;
        self.change_rules(subscription, commits, |rules| {
            if rules.iter().any(|known| same(&known.name, &rule.name)) {
                return Err(EntityError::Exists(name_of(Kind::Rule, &rule.name)));
            }
            if rules.len() >= RULES_MAX {
                return Err(EntityError::Definition(DefinitionError::Rule {
                    rule: name_of(Kind::Rule, &rule.name),
                    why: format!("a subscription has {RULES_MAX} rules at most").into(),
                }));
            }
            rules.push(rule.clone());
            Ok(())
        })
    }

    /// Removes a rule from a subscription. A subscription without rules takes no messages.
    ///
    /// # Errors
    /// [`EntityError::NotFound`] or [`EntityError::Closed`].
    pub fn remove_rule(
        &self,
        subscription: &Queue,
        name: &str,
        commits: &mut Commits,
    ) -> Result<(), EntityError> {
        self.change_rules(subscription, commits, |rules| {
            let before = rules.len();
            rules.retain(|known| !same(&known.name, name));
            if rules.len() == before {
                return Err(EntityError::NotFound(name_of(Kind::Rule, name)));
            }
            Ok(())
        })
    }

    /// Creates or changes all entities that a configuration declares. Other entities stay. The rules of an existing
    /// subscription are replaced only if the configuration has rules for it.
    ///
    /// # Errors
    /// The first [`EntityError`]. The entities before it in the configuration have changed then.
    pub fn declare(
        &self,
        definitions: &Definitions,
        commits: &mut Commits,
    ) -> Result<(), EntityError> {
        definitions.check()?;
        let by = DeclaredBy::Configuration;
        let _changing = self.changing.lock();
        self.check_declared(definitions)?;
        // Entities of a closed shard are declared when the shard is open again.
        let is_open = |name: &str| self.shard_of(name).is_open();
        for definition in definitions.queues.iter().filter(|queue| is_open(&queue.name)) {
            let name = name_of(Kind::Queue, &definition.name);
            match self.find_key(&path::key(&definition.name)) {
                None => {
                    self.check_room(1)?;
                    self.insert_queue(definition, by, commits);
                }
                Some(Node::Topic(_)) => {
                    return Err(EntityError::Exists(name_of(Kind::Topic, &definition.name)));
                }
                Some(Node::Queue(queue)) => {
                    check_fixed(&queue, &definition.properties, &name)?;
                    queue.configure(Configured::queue(definition.clone(), by), commits);
                }
            }
        }
        for definition in definitions.topics.iter().filter(|topic| is_open(&topic.name)) {
            let topic = match self.find_key(&path::key(&definition.name)) {
                None => {
                    self.check_room(1)?;
                    self.insert_topic(definition, by, commits)
                }
                Some(Node::Queue(_)) => {
                    return Err(EntityError::Exists(name_of(Kind::Queue, &definition.name)));
                }
                Some(Node::Topic(topic)) => {
                    self.change_topic(&topic, definition, by, commits)?;
                    topic
                }
            };
            for subscription in &definition.subscriptions {
                let path = subscription_path(topic.path(), &subscription.name);
                if self.find_key(&path::key(&path)).is_some() {
                    self.change_subscription(&topic, subscription, by, commits)?;
                } else {
                    self.check_room(1)?;
                    self.insert_subscription(&topic, subscription, by, commits)?;
                }
            }
        }
        Ok(())
    }

    /// Stores the exact next sequence numbers of all entities, so that none are skipped. Must be the last change
    /// before the process ends.
    pub fn note_numbers(&self, commits: &mut Commits) {
        let nodes: Vec<_> = self.nodes.read().values().cloned().collect();
        for node in nodes {
            node.entity().note_numbers(commits);
        }
    }

    /// Adds an entity that was found in the store.
    pub(super) fn put_recovered(&self, node: Node) {
        self.nodes.write().insert(node.entity().key().into(), node);
    }

    fn queue(&self, name: &str) -> Result<Arc<Queue>, EntityError> {
        match self.find_key(&path::key(name)) {
            Some(Node::Queue(queue)) if !queue.is_subscription() => Ok(queue),
            _ => Err(EntityError::NotFound(name_of(Kind::Queue, name))),
        }
    }

    fn topic(&self, name: &str) -> Result<Arc<Topic>, EntityError> {
        let topic = self.find_topic(&path::key(name));
        topic.ok_or_else(|| EntityError::NotFound(name_of(Kind::Topic, name)))
    }

    fn insert_queue(
        &self,
        definition: &QueueDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Arc<Queue> {
        let configured = Configured::queue(definition.clone(), by);
        let queue = self.new_queue(&definition.name, configured, commits);
        self.nodes.write().insert(queue.key().into(), Node::Queue(Arc::clone(&queue)));
        queue
    }

    fn insert_topic(
        &self,
        definition: &TopicDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Arc<Topic> {
        let configured = Configured::topic(definition.clone(), by);
        let held = self.new_queue(&definition.name, configured, commits);
        let key = held.key().into();
        let topic = Arc::new(Topic::new(held));
        self.nodes.write().insert(key, Node::Topic(Arc::clone(&topic)));
        topic
    }

    fn insert_subscription(
        &self,
        topic: &Topic,
        definition: &SubscriptionDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        let mut definition = definition.clone();
        if definition.rules.is_empty() {
            definition.rules.push(RuleDefinition::default_rule());
        }
        let path = subscription_path(topic.path(), &definition.name);
        let configured = Configured::subscription(definition, &topic_properties(topic), by)?;
        let queue = self.new_queue(&path, configured, commits);
        self.nodes.write().insert(queue.key().into(), Node::Queue(Arc::clone(&queue)));
        topic.add(Arc::clone(&queue));
        Ok(queue)
    }

    fn new_queue(&self, path: &str, configured: Configured, commits: &mut Commits) -> Arc<Queue> {
        let queue = Queue::new(&self.home, path, configured);
        queue.begin(commits);
        queue
    }

    fn change_topic(
        &self,
        topic: &Topic,
        definition: &TopicDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<(), EntityError> {
        let configured = Configured::topic(definition.clone(), by);
        let name = name_of(Kind::Topic, topic.path());
        check_fixed(topic.held(), &configured.properties, &name)?;
        topic.held().configure(configured, commits);
        for subscription in topic.subscriptions().iter() {
            let own = subscription.configured();
            let Definition::Subscription(definition) = &own.definition else { continue };
            let properties = topic_properties(topic);
            let by = own.declared_by;
            let changed = Configured::subscription(definition.clone(), &properties, by)?;
            subscription.adopt(changed);
        }
        Ok(())
    }

    fn change_subscription(
        &self,
        topic: &Topic,
        definition: &SubscriptionDefinition,
        by: DeclaredBy,
        commits: &mut Commits,
    ) -> Result<Arc<Queue>, EntityError> {
        let path = subscription_path(topic.path(), &definition.name);
        let name = name_of(Kind::Subscription, &path);
        let Some(Node::Queue(queue)) = self.find_key(&path::key(&path)) else {
            return Err(EntityError::NotFound(name));
        };
        let mut definition = definition.clone();
        if let (true, Definition::Subscription(before)) =
            (definition.rules.is_empty(), &queue.configured().definition)
        {
            definition.rules.clone_from(&before.rules);
        }
        let configured = Configured::subscription(definition, &topic_properties(topic), by)?;
        check_fixed(&queue, &configured.properties, &name)?;
        queue.configure(configured, commits);
        Ok(queue)
    }

    fn change_rules(
        &self,
        subscription: &Queue,
        commits: &mut Commits,
        change: impl FnOnce(&mut Vec<RuleDefinition>) -> Result<(), EntityError>,
    ) -> Result<(), EntityError> {
        let _changing = self.changing.lock();
        self.check_open(subscription.path())?;
        let not_found = || EntityError::NotFound(name_of(Kind::Subscription, subscription.path()));
        let configured = subscription.configured();
        let Definition::Subscription(definition) = &configured.definition else {
            return Err(not_found());
        };
        let topic = path::split_subscription(subscription.key());
        let topic = topic.and_then(|(topic, _)| self.find_topic(topic)).ok_or_else(not_found)?;
        let mut definition = definition.clone();
        change(&mut definition.rules)?;
        let by = configured.declared_by;
        let changed = Configured::subscription(definition, &topic_properties(&topic), by)?;
        subscription.configure(changed, commits);
        Ok(())
    }

    fn check_new(&self, name: &str, count: usize) -> Result<(), EntityError> {
        let key = path::key(name);
        if let Some(node) = self.find_key(&key) {
            let kind = match &node {
                Node::Topic(_) => Kind::Topic,
                Node::Queue(queue) if queue.is_subscription() => Kind::Subscription,
                Node::Queue(_) => Kind::Queue,
            };
            return Err(EntityError::Exists(name_of(kind, node.path())));
        }
        self.check_open(name)?;
        self.check_room(count)
    }

    /// Returns the shard of the entity with this name, which need not exist.
    fn shard_of(&self, name: &str) -> Arc<DurableShard> {
        shard_of(&self.home, &path::key(name))
    }

    /// Checks that the shard of an entity is open. The caller holds `changing`, so the shard is not closed before
    /// the change is done.
    fn check_open(&self, name: &str) -> Result<(), EntityError> {
        match self.shard_of(name).is_open() {
            true => Ok(()),
            false => Err(EntityError::Closed(format!("{name:?}").into())),
        }
    }

    /// Empties the entities of a shard in memory because the shard is being closed: their contents stay in the
    /// store only. Notifies their receivers.
    pub fn leave(&self, shard: ShardIndex) {
        let _changing = self.changing.lock();
        let nodes = self.nodes.read().clone();
        let of_shard = nodes.values().map(Node::entity).filter(|it| it.shard().index() == shard);
        of_shard.for_each(|queue| queue.leave());
    }

    /// Forgets the entities for which `stays` returns false. What they had is in the store, or nowhere.
    pub fn retain(&self, stays: impl Fn(&Queue) -> bool) {
        self.nodes.write().retain(|_, node| stays(node.entity()));
    }

    fn check_room(&self, count: usize) -> Result<(), EntityError> {
        (self.admits)(self.len() + count).map_err(EntityError::TooMany)
    }

    /// Checks that each entity to which a configuration forwards exists, or is declared in it.
    fn check_declared(&self, definitions: &Definitions) -> Result<(), EntityError> {
        let names = definitions.queues.iter().map(|queue| &queue.name);
        let names = names.chain(definitions.topics.iter().map(|topic| &topic.name));
        let declared: HashSet<_> = names.map(|name| path::key(name)).collect();
        for queue in &definitions.queues {
            let name = name_of(Kind::Queue, &queue.name);
            self.check_targets_among(&queue.properties, &name, &declared)?;
        }
        for topic in &definitions.topics {
            for subscription in &topic.subscriptions {
                let path = subscription_path(&topic.name, &subscription.name);
                let properties = effective(&subscription.properties);
                let name = name_of(Kind::Subscription, &path);
                self.check_targets_among(&properties, &name, &declared)?;
            }
        }
        Ok(())
    }

    fn check_subscription_targets(
        &self,
        topic: &str,
        definition: &SubscriptionDefinition,
    ) -> Result<(), EntityError> {
        let name = name_of(Kind::Subscription, &subscription_path(topic, &definition.name));
        self.check_targets(&effective(&definition.properties), &name)
    }

    fn check_targets(&self, properties: &QueueProperties, name: &str) -> Result<(), EntityError> {
        self.check_targets_among(properties, name, &HashSet::new())
    }

    fn check_targets_among(
        &self,
        properties: &QueueProperties,
        name: &str,
        declared: &HashSet<Box<str>>,
    ) -> Result<(), EntityError> {
        let targets = [
            ("ForwardTo", properties.forwards_to(), &properties.forward_to),
            (
                "ForwardDeadLetteredMessagesTo",
                properties.forwards_dead_letters_to(),
                &properties.forward_dead_lettered_messages_to,
            ),
        ];
        for (property, key, target) in targets {
            let Some(key) = key else { continue };
            if !declared.contains(&key) && self.find_key(&key).is_none() {
                let (entity, target) = (name.into(), (**target).into());
                return Err(EntityError::NoTarget { entity, property, target });
            }
        }
        Ok(())
    }
}

/// Checks that the properties that are fixed when an entity is created have not changed.
fn check_fixed(queue: &Queue, new: &QueueProperties, name: &str) -> Result<(), EntityError> {
    let old = &queue.configured().properties;
    let fixed = [
        ("RequiresSession", old.requires_session, new.requires_session),
        (
            "RequiresDuplicateDetection",
            old.requires_duplicate_detection,
            new.requires_duplicate_detection,
        ),
    ];
    match fixed.into_iter().find(|(_, is, wanted)| is != wanted) {
        Some((property, is, _)) => Err(EntityError::Fixed { entity: name.into(), property, is }),
        None => Ok(()),
    }
}

fn topic_properties(topic: &Topic) -> TopicProperties {
    topic.configured().topic_properties().cloned().expect("a topic is declared as one")
}

/// Returns the properties of a subscription without those that it inherits from its topic.
fn effective(own: &SubscriptionProperties) -> QueueProperties {
    QueueProperties::of_subscription(&TopicProperties::default(), own)
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn name_of(kind: Kind, name: &str) -> Box<str> {
    let kind = match kind {
        Kind::Queue => "queue",
        Kind::Topic => "topic",
        Kind::Subscription => "subscription",
        Kind::Rule => "rule",
    };
    format!("{kind} {name:?}").into()
}

impl fmt::Debug for Entities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entities").field("len", &self.len()).finish_non_exhaustive()
    }
}
