//! What an entity is declared as, how that is stored, and what follows from it.

use barid_core::rules::Rule;
use serde::{Deserialize, Serialize};

use super::definition::{
    DefinitionError, QueueDefinition, QueueProperties, SubscriptionDefinition, TopicDefinition,
    TopicProperties,
};
use super::iso8601::IsoDuration;
use super::path;
use super::rule::RuleDefinition;

/// Who has declared an entity last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeclaredBy {
    /// The configuration, or a file that it names.
    Configuration,
    /// Somebody, while the broker ran.
    Admin,
}

/// What an entity is declared as.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Definition {
    /// A queue.
    Queue(QueueDefinition),
    /// A topic; its subscriptions are entities of their own and not in it.
    Topic(TopicDefinition),
    /// A subscription.
    Subscription(SubscriptionDefinition),
}

/// An entity as it is stored, beside its path.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Stored {
    /// Who has declared it.
    pub(super) declared_by: DeclaredBy,
    /// As what.
    pub(super) definition: Definition,
}

/// What an entity is declared as, and what follows from it.
#[derive(Clone, Debug)]
pub struct Configured {
    /// As what it is declared.
    pub definition: Definition,
    /// By whom.
    pub declared_by: DeclaredBy,
    /// What holds for it: of a subscription, also what its topic says.
    pub properties: QueueProperties,
    /// The rules of a subscription.
    pub rules: Box<[Rule]>,
    /// The key of the entity that messages go to from here.
    pub forwards_to: Option<Box<str>>,
    /// The key of the entity that dead letters go to from here.
    pub dead_letters_to: Option<Box<str>>,
}

impl Stored {
    /// The bytes of the record.
    pub(super) fn encode(configured: &Configured) -> Box<[u8]> {
        let Configured { definition, declared_by, .. } = configured;
        let stored = Self { declared_by: *declared_by, definition: definition.clone() };
        serde_json::to_vec(&stored).expect("a definition has text for keys").into()
    }
}

impl Configured {
    /// A queue.
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

    /// A topic: what holds for the queue in which it keeps what is scheduled.
    pub(super) fn topic(mut definition: TopicDefinition, declared_by: DeclaredBy) -> Self {
        definition.subscriptions.clear();
        let own = &definition.properties;
        let properties = QueueProperties {
            // What is due is moved on, however long that takes.
            lock_duration: IsoDuration::seconds(3_600),
            max_delivery_count: u32::MAX,
            default_message_time_to_live: own.default_message_time_to_live,
            duplicate_detection_history_time_window: own.duplicate_detection_history_time_window,
            requires_duplicate_detection: own.requires_duplicate_detection,
            max_message_size_in_kilobytes: own.max_message_size_in_kilobytes,
            max_size_in_megabytes: own.max_size_in_megabytes,
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

    /// A subscription of a topic with these properties.
    ///
    /// # Errors
    /// A rule cannot be understood.
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

    /// The topic's own properties, if it is one.
    pub(super) fn topic_properties(&self) -> Option<&TopicProperties> {
        match &self.definition {
            Definition::Topic(topic) => Some(&topic.properties),
            _ => None,
        }
    }
}
