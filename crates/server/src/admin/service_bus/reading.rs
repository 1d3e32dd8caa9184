//! Answers to GET: one entity, or a page of a list.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use barid_core::rules::same_name;
use barid_core::time::WallTime;
use barid_engine::entities::{
    self, Configured, Definition, Entities, FilterType, Node, Queue, QueueDefinition,
    RuleDefinition, RuleProperties, SubscriptionDefinition, Topic, TopicDefinition,
    subscription_path,
};
use serde::{Deserialize, Serialize};

use super::atom::{self, Context, Entry, UNKNOWN_TIME};
use super::properties;
use super::rule;
use super::target::Target;
use super::xml::{COUNTS, INSTANCE, SERVICE_BUS, Writer};
use crate::admin::Served;
use crate::admin::answer::Refusal;
use crate::admin::entities::{definition, name_of, of_any_tenant, subscription_of};
use crate::admin::rfc3339::Rfc3339;

/// Maximum number of entities in a page.
const TOP_MAX: usize = 100;

/// Elements in front of all descriptions.
const NAMESPACES: [(&str, &str); 2] = [("xmlns", SERVICE_BUS), ("xmlns:i", INSTANCE)];

/// The elements of a queue, in the order of Service Bus. Old versions of the protocol do not have the last one.
const QUEUE: [&str; 27] = [
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "SizeInBytes",
    "MessageCount",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
];

/// The elements of a topic. Old versions of the protocol do not have the last one.
const TOPIC: [&str; 25] = [
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "SupportOrdering",
    "CountDetails",
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableSubscriptionPartitioning",
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
];

/// The elements of a subscription.
const SUBSCRIPTION: [&str; 18] = [
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DeadLetteringOnFilterEvaluationExceptions",
    "MessageCount",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "ForwardDeadLetteredMessagesTo",
    "AutoDeleteOnIdle",
    "EntityAvailabilityStatus",
    "UserMetadata",
];

/// The part of a list that a request asks for.
#[derive(Debug, Deserialize)]
pub struct Paging {
    #[serde(rename = "$skip", default)]
    skip: usize,
    #[serde(rename = "$top", default = "top_max")]
    top: usize,
}

fn top_max() -> usize {
    TOP_MAX
}

impl Paging {
    /// Takes the page from a list. Also returns where the next page begins, and its size.
    fn page<T>(&self, all: impl Iterator<Item = T>) -> (Vec<T>, Option<(usize, usize)>) {
        let top = self.top.min(TOP_MAX);
        let mut page: Vec<T> = all.skip(self.skip).take(top + 1).collect();
        let more = page.len() > top && top > 0;
        page.truncate(top);
        (page, more.then(|| (self.skip.saturating_add(top), top)))
    }
}

/// Answers a GET about the entities of a tenant.
pub fn read(
    served: &Served,
    tenant: &str,
    target: &Target,
    paging: &Paging,
    context: &Context,
) -> Result<Response, Refusal> {
    let entities = of_any_tenant(served, tenant)?;
    match target {
        Target::Namespace => Ok(namespace(tenant, context)),
        Target::Queues => {
            let all = entities.list().into_iter();
            let queues = all.filter(|node| matches!(node, Node::Queue(_)));
            let (page, next) = paging.page(queues);
            Ok(list("$Resources/queues", &page, next, context))
        }
        Target::Topics => {
            let all = entities.list().into_iter();
            let topics = all.filter(|node| matches!(node, Node::Topic(_)));
            let (page, next) = paging.page(topics);
            Ok(list("$Resources/topics", &page, next, context))
        }
        Target::Entity(path) => {
            let node = entities.find_key(&entities::key(path)).ok_or_else(|| not_found(path))?;
            Ok(entity_entry(StatusCode::OK, &node, context))
        }
        Target::Subscriptions(topic) => {
            let topic = find_topic(&entities, topic)?;
            let all = topic.subscriptions();
            let (page, next) = paging.page(all.iter().map(|queue| Node::Queue(Arc::clone(queue))));
            Ok(list(&format!("{}/Subscriptions", topic.path()), &page, next, context))
        }
        Target::Subscription { topic, name } => {
            let queue = find_subscription(&entities, topic, name)?;
            Ok(entity_entry(StatusCode::OK, &Node::Queue(queue), context))
        }
        Target::Rules { topic, subscription } => {
            let queue = find_subscription(&entities, topic, subscription)?;
            let rules = definition(&queue).rules;
            let (page, next) = paging.page(rules.iter());
            let entries = page.into_iter().map(|rule| described_rule(&queue, rule));
            Ok(atom::feed(&format!("{}/Rules", queue.path()), entries, next, context))
        }
        Target::Rule { topic, subscription, name } => {
            let queue = find_subscription(&entities, topic, subscription)?;
            let rules = definition(&queue).rules;
            let rule = rules.iter().find(|rule| same_name(&rule.name, name));
            Ok(rule_entry(StatusCode::OK, &queue, rule.ok_or_else(|| not_found(name))?, context))
        }
    }
}

/// Answers with a queue, topic or subscription.
pub fn entity_entry(status: StatusCode, node: &Node, context: &Context) -> Response {
    atom::entry(status, &described(node, context), context)
}

/// Answers with a rule of a subscription.
pub fn rule_entry(
    status: StatusCode,
    subscription: &Queue,
    rule: &RuleDefinition,
    context: &Context,
) -> Response {
    atom::entry(status, &described_rule(subscription, rule), context)
}

/// Returns the topic with this path.
pub fn find_topic(entities: &Entities, path: &str) -> Result<Arc<Topic>, Refusal> {
    entities.find_topic(&entities::key(path)).ok_or_else(|| not_found(path))
}

/// Returns a subscription of a topic.
pub fn find_subscription(
    entities: &Entities,
    topic: &str,
    name: &str,
) -> Result<Arc<Queue>, Refusal> {
    subscription_of(entities, topic, name).ok_or_else(|| not_found(&subscription_path(topic, name)))
}

/// The error for something that does not exist. Clients know it by its status.
pub fn not_found(what: &str) -> Refusal {
    Refusal::not_found(format!("The messaging entity {what:?} could not be found. SubCode=40400."))
}

fn list(path: &str, page: &[Node], next: Option<(usize, usize)>, context: &Context) -> Response {
    let entries = page.iter().map(|node| described(node, context));
    atom::feed(path, entries, next, context)
}

/// Returns the entry of a queue, topic or subscription.
fn described<'a>(node: &'a Node, context: &'a Context) -> Entry<'a> {
    let title = match node {
        Node::Queue(queue) if queue.is_subscription() => name_of(queue),
        _ => node.path().into(),
    };
    let described = Described { node, configured: node.entity().configured(), context };
    let description = Box::new(move |xml: &mut Writer| described.write(xml));
    Entry { path: node.path().into(), title, description }
}

/// Returns the entry of a rule.
fn described_rule<'a>(subscription: &Queue, rule: &'a RuleDefinition) -> Entry<'a> {
    let path = format!("{}/Rules/{}", subscription.path(), rule.name);
    let created = subscription.times().rule_created_at(&rule.name);
    let description = Box::new(move |xml: &mut Writer| {
        rule::write(xml, rule, |xml, name| write_time(xml, name, created));
    });
    Entry { path, title: rule.name.clone(), description }
}

/// A queue, topic or subscription that is written as a description.
struct Described<'a> {
    node: &'a Node,
    configured: Arc<Configured>,
    context: &'a Context,
}

impl Described<'_> {
    fn write(&self, xml: &mut Writer) {
        let left_out = usize::from(!self.context.has_message_size());
        match &self.configured.definition {
            Definition::Queue(QueueDefinition { properties, .. }) => {
                let order = &QUEUE[..QUEUE.len() - left_out];
                self.write_as(xml, "QueueDescription", properties, order);
            }
            Definition::Topic(TopicDefinition { properties, .. }) => {
                let order = &TOPIC[..TOPIC.len() - left_out];
                self.write_as(xml, "TopicDescription", properties, order);
            }
            Definition::Subscription(SubscriptionDefinition { properties, .. }) => {
                self.write_as(xml, "SubscriptionDescription", properties, &SUBSCRIPTION);
            }
        }
    }

    fn write_as(&self, xml: &mut Writer, kind: &str, properties: &impl Serialize, order: &[&str]) {
        let special = |xml: &mut Writer, name: &str| self.write_special(xml, name);
        xml.element(kind, &NAMESPACES, |xml| {
            properties::write(xml, properties, &self.context.authority, order, special);
        });
    }

    /// Writes an element that is no property of the entity.
    fn write_special(&self, xml: &mut Writer, name: &str) {
        match name {
            "DeadLetteringOnFilterEvaluationExceptions" => xml.text(name, true),
            "EnableSubscriptionPartitioning" => xml.text(name, false),
            "AuthorizationRules" => xml.element(name, &[], |_| {}),
            "CreatedAt" => write_time(xml, name, self.node.entity().times().created_at()),
            "UpdatedAt" => write_time(xml, name, self.node.entity().times().changed_at()),
            "AccessedAt" => write_time(xml, name, self.node.entity().used_at()),
            "SizeInBytes" => xml.text(name, self.size()),
            "MessageCount" => {
                let counts = self.node.entity().counts();
                let all = [
                    counts.active,
                    counts.locked,
                    counts.deferred,
                    counts.scheduled,
                    counts.dead_lettered,
                    counts.transfer_dead_lettered,
                ];
                xml.text(name, all.iter().sum::<usize>());
            }
            "CountDetails" => self.write_counts(xml),
            "SubscriptionCount" => {
                if let Node::Topic(topic) = self.node {
                    xml.text(name, topic.subscriptions().len());
                }
            }
            "SqlFilterCount" => {
                xml.text(name, self.filters(|kind| kind != FilterType::Correlation))
            }
            "CorrelationFilterCount" => {
                xml.text(name, self.filters(|kind| kind == FilterType::Correlation));
            }
            _ => {}
        }
    }

    /// Bytes of all messages, of a topic those in its subscriptions.
    fn size(&self) -> usize {
        let own = self.node.entity().counts().bytes;
        match self.node {
            Node::Queue(_) => own,
            Node::Topic(topic) => {
                own + topic.subscriptions().iter().map(|queue| queue.counts().bytes).sum::<usize>()
            }
        }
    }

    fn write_counts(&self, xml: &mut Writer) {
        let counts = self.node.entity().counts();
        xml.element("CountDetails", &[("xmlns:d2p1", COUNTS)], |xml| {
            for (name, count) in [
                ("ActiveMessageCount", counts.active + counts.locked + counts.deferred),
                ("DeadLetterMessageCount", counts.dead_lettered),
                ("ScheduledMessageCount", counts.scheduled),
                ("TransferMessageCount", 0),
                ("TransferDeadLetterMessageCount", counts.transfer_dead_lettered),
            ] {
                xml.text(&format!("d2p1:{name}"), count);
            }
        });
    }

    /// Number of rules in all subscriptions of a topic whose filters are of a kind.
    fn filters(&self, wanted: impl Fn(FilterType) -> bool) -> usize {
        let Node::Topic(topic) = self.node else { return 0 };
        let subscriptions = topic.subscriptions();
        let rules = subscriptions.iter().flat_map(|queue| definition(queue).rules);
        rules.filter(|rule| wanted(kind(&rule.properties))).count()
    }
}

fn write_time(xml: &mut Writer, name: &str, at: Option<WallTime>) {
    match at {
        Some(at) => xml.text(name, Rfc3339::from(at)),
        None => xml.text(name, UNKNOWN_TIME),
    }
}

/// Returns the kind of a rule's filter.
fn kind(properties: &RuleProperties) -> FilterType {
    match properties {
        RuleProperties { filter_type: Some(kind), .. } => *kind,
        RuleProperties { sql_filter: Some(_), .. } => FilterType::Sql,
        RuleProperties { correlation_filter: Some(_), .. } => FilterType::Correlation,
        _ => FilterType::True,
    }
}

fn namespace(tenant: &str, context: &Context) -> Response {
    let description = Box::new(|xml: &mut Writer| {
        xml.element("NamespaceInfo", &NAMESPACES, |xml| {
            xml.text("CreatedTime", UNKNOWN_TIME);
            xml.text("MessagingSKU", "Standard");
            xml.text("ModifiedTime", UNKNOWN_TIME);
            xml.text("Name", tenant);
            xml.text("NamespaceType", "Messaging");
        });
    });
    let entry = Entry { path: "$namespaceinfo".into(), title: tenant.into(), description };
    atom::entry(StatusCode::OK, &entry, context)
}
