//! The definition of an entity, its stored form, and what is derived from it.

use std::collections::BTreeMap;

use barid_core::rules::Rule;
use barid_core::time::WallTime;
use serde::{Deserialize, Serialize};

use super::definition::{
    DefinitionError, QueueDefinition, QueueProperties, SubscriptionDefinition, TopicDefinition,
    TopicProperties,
};
use super::iso8601::IsoDuration;
use super::path;
use super::rule::RuleDefinition;

/// The origin of the current definition of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeclaredBy {
    /// The configuration, or a file that it names.
    Configuration,
    /// A request while the broker was running.
    Admin,
}

/// The definition of an entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Definition {
    /// A queue.
    Queue(QueueDefinition),
    /// A topic. Its subscriptions are entities of their own and are not included.
    Topic(TopicDefinition),
    /// A subscription.
    Subscription(SubscriptionDefinition),
}

impl Definition {
    /// The rules of a subscription; none of other entities.
    fn rules(&self) -> &[RuleDefinition] {
        match self {
            Self::Subscription(subscription) => &subscription.rules,
            Self::Queue(_) | Self::Topic(_) => &[],
        }
    }
}

/// The stored form of an entity's definition. The path is in the key of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Stored {
    /// The origin of the definition.
    pub(super) declared_by: DeclaredBy,
    /// The definition.
    pub(super) definition: Definition,
    /// When it was created and changed. Absent in stores of earlier versions.
    #[serde(flatten)]
    pub(super) times: Times,
}

/// When an entity was created, and when its definition was changed last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Times {
    /// In milliseconds since the Unix epoch; `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<u64>,
    /// In milliseconds since the Unix epoch; `None`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_at: Option<u64>,
    /// When the rules of a subscription were created, by name, as far as that is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rules_created_at: BTreeMap<String, u64>,
}

impl Times {
    /// The times of an entity that is created now.
    pub(super) fn created(now: WallTime, definition: &Definition) -> Self {
        let rules = definition.rules().iter().map(|rule| (rule.name.clone(), now.as_millis()));
        Self {
            created_at: Some(now.as_millis()),
            changed_at: Some(now.as_millis()),
            rules_created_at: rules.collect(),
        }
    }

    /// The times after a change of the definition. A rule of which no time was known has none.
    pub(super) fn changed(&self, now: WallTime, before: &Definition, after: &Definition) -> Self {
        let existed = |name: &str| before.rules().iter().any(|rule| rule.name == name);
        let created = |name: &str| match self.rules_created_at.get(name) {
            None if !existed(name) => Some(now.as_millis()),
            known => known.copied(),
        };
        let rules = after.rules().iter();
        Self {
            created_at: self.created_at,
            changed_at: Some(now.as_millis()),
            rules_created_at: rules
                .filter_map(|rule| Some((rule.name.clone(), created(&rule.name)?)))
                .collect(),
        }
    }

    /// When a rule of the subscription was created; `None`: by an earlier version of the broker.
    pub fn rule_created_at(&self, name: &str) -> Option<WallTime> {
        self.rules_created_at.get(name).copied().map(WallTime::from_millis)
    }

    /// When the entity was created; `None`: by an earlier version of the broker.
    pub fn created_at(&self) -> Option<WallTime> {
        self.created_at.map(WallTime::from_millis)
    }

    /// When its definition was changed last, or when it was created.
    pub fn changed_at(&self) -> Option<WallTime> {
        self.changed_at.map(WallTime::from_millis)
    }
}

/// The definition of an entity, and what is derived from it.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The definition.
    pub definition: Definition,
    /// The origin of the definition.
    pub declared_by: DeclaredBy,
    /// The properties in effect. Those of a subscription include what it inherits from its topic.
    pub properties: QueueProperties,
    /// The compiled rules of a subscription.
    pub rules: Box<[Rule]>,
    /// The key of the entity to which messages are moved. For a topic this is its own key: due messages are given
    /// to its subscriptions.
    pub forwards_to: Option<Box<str>>,
    /// The key of the entity to which dead letters are moved.
    pub dead_letters_to: Option<Box<str>>,
}

impl Stored {
    /// Encodes the record.
    pub(super) fn encode(configured: &Configured, times: Times) -> Box<[u8]> {
        let Configured { definition, declared_by, .. } = configured;
        let stored = Self { declared_by: *declared_by, definition: definition.clone(), times };
        serde_json::to_vec(&stored).expect("a definition has text for keys").into()
    }
}

impl Configured {
    /// Derives the configuration of a queue.
    pub(super) fn queue(definition: QueueDefinition, declared_by: DeclaredBy) -> Self {
        let properties = definition.properties.clone();
        Self {
            forwards_to: properties.forwards_to(),
            dead_letters_to: properties.forwards_dead_letters_to(),
            definition: Definition::Queue(definition),
            declared_by,
            properties,
            rules: Box::default(),
        }
    }

    /// Derives the configuration of a topic. Its properties are those of the queue that holds the topic's scheduled
    /// messages.
    pub(super) fn topic(mut definition: TopicDefinition, declared_by: DeclaredBy) -> Self {
        definition.subscriptions.clear();
        let own = &definition.properties;
        let properties = QueueProperties {
            // Due messages are given to the subscriptions, however long that takes and however often it is tried.
            lock_duration: IsoDuration::seconds(3_600),
            max_delivery_count: u32::MAX,
            auto_delete_on_idle: own.auto_delete_on_idle,
            default_message_time_to_live: own.default_message_time_to_live,
            duplicate_detection_history_time_window: own.duplicate_detection_history_time_window,
            requires_duplicate_detection: own.requires_duplicate_detection,
            max_message_size_in_kilobytes: own.max_message_size_in_kilobytes,
            max_size_in_megabytes: own.max_size_in_megabytes,
            status: own.status,
            ..QueueProperties::default()
        };
        Self {
            forwards_to: Some(path::key(&definition.name)),
            dead_letters_to: None,
            definition: Definition::Topic(definition),
            declared_by,
            properties,
            rules: Box::default(),
        }
    }

    /// Derives the configuration of a subscription of a topic with these properties.
    ///
    /// # Errors
    /// [`DefinitionError`] if a rule is invalid.
    pub(super) fn subscription(
        definition: SubscriptionDefinition,
        topic: &TopicProperties,
        declared_by: DeclaredBy,
    ) -> Result<Self, DefinitionError> {
        let properties = QueueProperties::of_subscription(topic, &definition.properties);
        Ok(Self {
            forwards_to: properties.forwards_to(),
            dead_letters_to: properties.forwards_dead_letters_to(),
            rules: definition
                .rules
                .iter()
                .map(RuleDefinition::compile)
                .collect::<Result<_, _>>()?,
            definition: Definition::Subscription(definition),
            declared_by,
            properties,
        })
    }

    /// The topic's own properties; `None` if the entity is not a topic.
    pub(super) fn topic_properties(&self) -> Option<&TopicProperties> {
        match &self.definition {
            Definition::Topic(topic) => Some(&topic.properties),
            _ => None,
        }
    }
}
