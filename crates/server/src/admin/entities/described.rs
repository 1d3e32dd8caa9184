//! Entities as the admin API describes them.

use barid_core::entity::Counts as Counted;
use barid_engine::entities::{
    DeclaredBy, Definition, Queue, QueueProperties, RuleDefinition, RuleProperties,
    SubscriptionProperties, Topic, TopicProperties,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::rfc3339::Rfc3339;

/// A queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct DescribedQueue {
    name: Box<str>,
    /// `configuration` or `admin`: who may change it.
    declared_by: &'static str,
    #[serde(flatten)]
    times: Times,
    properties: QueueProperties,
    /// Number of receivers.
    receivers: usize,
    counts: Counts,
}

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Topic)]
pub struct DescribedTopic {
    name: Box<str>,
    /// `configuration` or `admin`: who may change it.
    declared_by: &'static str,
    #[serde(flatten)]
    times: Times,
    properties: TopicProperties,
    /// The names of its subscriptions.
    subscriptions: Vec<String>,
    /// Messages that wait for their scheduled time.
    scheduled: usize,
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Subscription)]
pub struct DescribedSubscription {
    name: String,
    /// `configuration` or `admin`: who may change it.
    declared_by: &'static str,
    #[serde(flatten)]
    times: Times,
    properties: SubscriptionProperties,
    rules: Vec<DescribedRule>,
    /// Number of receivers.
    receivers: usize,
    counts: Counts,
}

/// A rule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Rule)]
pub struct DescribedRule {
    name: String,
    /// `None`: it was created by an earlier version of the broker.
    created_at: Option<Rfc3339>,
    properties: RuleProperties,
}

/// When an entity was created, changed and used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntityTimes)]
struct Times {
    /// `None`: by an earlier version of the broker.
    created_at: Option<Rfc3339>,
    /// When its properties were changed last.
    changed_at: Option<Rfc3339>,
    /// Since the broker has started.
    used_at: Option<Rfc3339>,
}

impl Times {
    fn of(entity: &Queue) -> Self {
        let times = entity.times();
        Self {
            created_at: times.created_at().map(Rfc3339::from),
            changed_at: times.changed_at().map(Rfc3339::from),
            used_at: entity.used_at().map(Rfc3339::from),
        }
    }
}

/// The contents of an entity, in numbers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntityCounts)]
struct Counts {
    /// Messages that receivers may get, and those that are locked.
    active: usize,
    /// Messages that receivers have locked.
    locked: usize,
    /// Messages that are received by their numbers only.
    deferred: usize,
    /// Messages that wait for their scheduled time.
    scheduled: usize,
    /// Dead letters.
    dead_lettered: usize,
    /// Messages that could not be forwarded.
    transfer_dead_lettered: usize,
    /// Message sessions.
    sessions: usize,
    /// Bytes of messages and states, as the size limit counts.
    bytes: usize,
    /// When the oldest active message was enqueued; `None`: there is none.
    oldest_enqueued_at: Option<Rfc3339>,
}

impl DescribedQueue {
    pub fn of(queue: &Queue) -> Self {
        let configured = queue.configured();
        Self {
            name: queue.path().into(),
            declared_by: declared_by(configured.declared_by),
            times: Times::of(queue),
            properties: configured.properties.clone(),
            receivers: queue.receivers(),
            counts: queue.counts().into(),
        }
    }
}

impl DescribedTopic {
    pub fn of(topic: &Topic) -> Self {
        let configured = topic.configured();
        let properties = match &configured.definition {
            Definition::Topic(definition) => definition.properties.clone(),
            Definition::Queue(_) | Definition::Subscription(_) => TopicProperties::default(),
        };
        Self {
            name: topic.path().into(),
            declared_by: declared_by(configured.declared_by),
            times: Times::of(topic.held()),
            properties,
            subscriptions: topic.subscriptions().iter().map(|queue| name_of(queue)).collect(),
            scheduled: topic.held().counts().scheduled,
        }
    }
}

impl DescribedSubscription {
    pub fn of(queue: &Queue) -> Self {
        let configured = queue.configured();
        let (properties, rules) = match &configured.definition {
            Definition::Subscription(definition) => {
                (definition.properties.clone(), &*definition.rules)
            }
            Definition::Queue(_) | Definition::Topic(_) => Default::default(),
        };
        Self {
            name: name_of(queue),
            declared_by: declared_by(configured.declared_by),
            times: Times::of(queue),
            properties,
            rules: rules.iter().map(|rule| DescribedRule::of(rule, queue)).collect(),
            receivers: queue.receivers(),
            counts: queue.counts().into(),
        }
    }
}

impl DescribedRule {
    /// Describes a rule of a subscription.
    pub fn of(rule: &RuleDefinition, subscription: &Queue) -> Self {
        let created_at = subscription.times().rule_created_at(&rule.name).map(Rfc3339::from);
        Self { name: rule.name.clone(), created_at, properties: rule.properties.clone() }
    }
}

impl From<Counted> for Counts {
    fn from(counted: Counted) -> Self {
        let Counted { active, locked, deferred, scheduled, sessions, bytes, .. } = counted;
        Self {
            active,
            locked,
            deferred,
            scheduled,
            dead_lettered: counted.dead_lettered,
            transfer_dead_lettered: counted.transfer_dead_lettered,
            sessions,
            bytes,
            oldest_enqueued_at: counted.oldest.map(Rfc3339::from),
        }
    }
}

/// Returns the name of a subscription within its topic.
pub fn name_of(subscription: &Queue) -> String {
    let path = subscription.path();
    path.rsplit_once('/').map_or(path, |(_, name)| name).into()
}

/// Returns the name that answers use.
pub fn declared_by(by: DeclaredBy) -> &'static str {
    match by {
        DeclaredBy::Configuration => "configuration",
        DeclaredBy::Admin => "admin",
    }
}
