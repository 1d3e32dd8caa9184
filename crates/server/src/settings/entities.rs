//! Queues and topics that the configuration declares.

use std::collections::BTreeMap;

use barid_engine::entities::{
    Definitions, QueueDefinition, QueueProperties, RuleDefinition, RuleProperties,
    SubscriptionDefinition, SubscriptionProperties, TopicDefinition, TopicProperties,
};
use serde::Deserialize;

use super::Settings;

/// A queue. The keys in `properties` have the names that Service Bus gives them.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Name: segments of letters, digits and `.-_~`, separated by `/`.
    pub name: String,
    /// Name of the tenant that the queue belongs to.
    #[serde(default = "barid_engine::names::default_tenant_name")]
    pub tenant: String,
    /// Properties of the queue.
    #[serde(default)]
    pub properties: QueueProperties,
}

/// A topic.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// Name, with the same syntax as that of a queue.
    pub name: String,
    /// Name of the tenant that the topic belongs to.
    #[serde(default = "barid_engine::names::default_tenant_name")]
    pub tenant: String,
    /// Properties of the topic.
    #[serde(default)]
    pub properties: TopicProperties,
    /// Subscriptions of the topic.
    #[serde(default)]
    pub subscriptions: Vec<Subscription>,
}

/// A subscription of a topic.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// Name, unique in the topic, without slashes.
    pub name: String,
    /// Properties of the subscription.
    #[serde(default)]
    pub properties: SubscriptionProperties,
    /// Rules that select messages: the subscription gets those that match any of the rules, or all if there
    /// are no rules.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// A rule of a subscription.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Name, unique in the subscription.
    pub name: String,
    /// The filter and the action.
    #[serde(default)]
    pub properties: RuleProperties,
}

impl Settings {
    /// Returns the declared queues and topics by tenant. Tenants without any are left out.
    pub fn declared(&self) -> BTreeMap<String, Definitions> {
        let mut declared: BTreeMap<String, Definitions> = BTreeMap::new();
        for queue in &self.queues {
            let of_tenant = declared.entry(queue.tenant.clone()).or_default();
            of_tenant.queues.push(queue.definition());
        }
        for topic in &self.topics {
            let of_tenant = declared.entry(topic.tenant.clone()).or_default();
            of_tenant.topics.push(topic.definition());
        }
        declared
    }

    /// Adds the queues and topics of `definitions` to those declared for a tenant.
    pub fn declare(&mut self, tenant: &str, definitions: Definitions) {
        let queue = |definition| Queue::of(tenant, definition);
        let topic = |definition| Topic::of(tenant, definition);
        self.queues.extend(definitions.queues.into_iter().map(queue));
        self.topics.extend(definitions.topics.into_iter().map(topic));
    }
}

impl Queue {
    /// Returns the definition of the queue, without its tenant.
    pub fn definition(&self) -> QueueDefinition {
        QueueDefinition { name: self.name.clone(), properties: self.properties.clone() }
    }

    fn of(tenant: &str, definition: QueueDefinition) -> Self {
        let QueueDefinition { name, properties } = definition;
        Self { name, tenant: tenant.into(), properties }
    }
}

impl Topic {
    /// Returns the definition of the topic, without its tenant.
    pub fn definition(&self) -> TopicDefinition {
        TopicDefinition {
            name: self.name.clone(),
            properties: self.properties.clone(),
            subscriptions: self.subscriptions.iter().map(Subscription::definition).collect(),
        }
    }

    fn of(tenant: &str, definition: TopicDefinition) -> Self {
        let TopicDefinition { name, properties, subscriptions } = definition;
        let subscriptions = subscriptions.into_iter().map(Subscription::of).collect();
        Self { name, tenant: tenant.into(), properties, subscriptions }
    }
}

impl Subscription {
    fn definition(&self) -> SubscriptionDefinition {
        SubscriptionDefinition {
            name: self.name.clone(),
            properties: self.properties.clone(),
            rules: self.rules.iter().map(Rule::definition).collect(),
        }
    }

    fn of(definition: SubscriptionDefinition) -> Self {
        let SubscriptionDefinition { name, properties, rules } = definition;
        Self { name, properties, rules: rules.into_iter().map(Rule::of).collect() }
    }
}

impl Rule {
    fn definition(&self) -> RuleDefinition {
        RuleDefinition { name: self.name.clone(), properties: self.properties.clone() }
    }

    fn of(RuleDefinition { name, properties }: RuleDefinition) -> Self {
        Self { name, properties }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_declared_is_found_by_tenant_and_comes_back_as_it_was() {
        let definitions: Definitions = serde_json::from_value(json!({
            "Queues": [{ "Name": "q", "Properties": { "RequiresSession": true } }],
            "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "s", "Rules": [{ "Name": "r",
                "Properties": { "FilterType": "Sql", "SqlFilter": { "SqlExpression": "a = 1" } } }] }] }],
        }))
        .unwrap();
        let mut settings = Settings::default();
        settings.declare("acme", definitions.clone());
        settings.queues.push(Queue { tenant: "other".into(), ..settings.queues[0].clone() });
        let declared = settings.declared();
        assert_eq!(declared["acme"], definitions);
        assert_eq!(declared["other"].queues, definitions.queues);
        assert_eq!(declared.len(), 2);
    }
}
