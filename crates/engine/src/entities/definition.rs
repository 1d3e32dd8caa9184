//! What queues, topics and subscriptions are declared as.
//!
//! Names and forms are those of the `Config.json` of Microsoft's emulator for Service Bus, so that such a file
//! serves Barid as it is. Limits are wider:
//!
//! | property | default | from | to |
//! | --- | --- | --- | --- |
//! | `LockDuration` | `PT1M` | `PT1S` | `P1D` |
//! | `MaxDeliveryCount` | 10 | 1 | 2147483647 |
//! | `DefaultMessageTimeToLive` | no limit | `PT0.001S` | no limit |
//! | `DuplicateDetectionHistoryTimeWindow` | `PT10M` | `PT1S` | `P7D` |
//! | `MaxSizeInMegabytes` (MiB, for each subscription of a topic) | 1024 | 1 | 1048576 |
//! | `MaxMessageSizeInKilobytes` (KiB) | 1024 | 1 | 102400 |

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use barid_core::entity::Properties;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::iso8601::IsoDuration;
use super::path::{self, Kind, NameError};
use super::rule::RuleDefinition;

/// The most rules of a subscription.
pub const RULES_MAX: usize = 100;

const LOCK_DURATION: RangeInclusive<IsoDuration> =
    IsoDuration::seconds(1)..=IsoDuration::seconds(86_400);
const HISTORY: RangeInclusive<IsoDuration> =
    IsoDuration::seconds(1)..=IsoDuration::seconds(7 * 86_400);
const DELIVERIES: RangeInclusive<u32> = 1..=0x7fff_ffff;
const MEGABYTES: RangeInclusive<u64> = 1..=1_048_576;
const KILOBYTES: RangeInclusive<u64> = 1..=102_400;
const USER_METADATA_MAX: usize = 1024;

/// As how many bytes a message counts at least.
const MESSAGE_MIN: usize = 512;

/// Sessions of one queue or subscription that have a message or a state.
const SESSIONS_MAX: usize = 10_000_000;

/// All entities that a configuration declares for a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct Definitions {
    /// Queues.
    pub queues: Vec<QueueDefinition>,
    /// Topics, with their subscriptions and rules.
    pub topics: Vec<TopicDefinition>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct QueueDefinition {
    /// Its path; see [`path::check_name`].
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub properties: QueueProperties,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct TopicDefinition {
    /// Its path; see [`path::check_name`].
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub properties: TopicProperties,
    /// Its subscriptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionDefinition>,
}

/// A subscription of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct SubscriptionDefinition {
    /// Its name, unique in the topic; see [`path::check_name`].
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub properties: SubscriptionProperties,
    /// Which messages it takes: those that any of them matches. When it is made without any, it gets
    /// `$Default`, which matches all; a subscription whose rules have all been removed takes none.
    #[serde(default)]
    pub rules: Vec<RuleDefinition>,
}

/// What a queue does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct QueueProperties {
    /// Whether messages that expire become dead letters, or are gone.
    pub dead_lettering_on_message_expiration: bool,
    /// How long messages live at most.
    pub default_message_time_to_live: IsoDuration,
    /// How long a message id is remembered.
    pub duplicate_detection_history_time_window: IsoDuration,
    /// The queue or topic that dead letters go to; empty: they stay in the dead-letter queue.
    pub forward_dead_lettered_messages_to: String,
    /// The queue or topic that messages go to; empty: they stay.
    pub forward_to: String,
    /// How long a message, or a session, is locked.
    pub lock_duration: IsoDuration,
    /// How often a message is delivered before it becomes a dead letter.
    pub max_delivery_count: u32,
    /// The longest message, and the longest state of a session, in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// The most that messages and states take, in MiB.
    pub max_size_in_megabytes: u64,
    /// Whether a message whose id was seen lately is dropped. Cannot be changed.
    pub requires_duplicate_detection: bool,
    /// Whether each message belongs to a session. Cannot be changed.
    pub requires_session: bool,
    /// Any text, of up to 1024 bytes.
    pub user_metadata: String,
}

/// What a topic does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct TopicProperties {
    /// How long messages live at most.
    pub default_message_time_to_live: IsoDuration,
    /// How long a message id is remembered.
    pub duplicate_detection_history_time_window: IsoDuration,
    /// The longest message, in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// The most that messages take in each subscription, in MiB.
    pub max_size_in_megabytes: u64,
    /// Whether a message whose id was seen lately is dropped. Cannot be changed.
    pub requires_duplicate_detection: bool,
    /// Any text, of up to 1024 bytes.
    pub user_metadata: String,
}

/// What a subscription does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct SubscriptionProperties {
    /// Whether messages that expire become dead letters, or are gone.
    pub dead_lettering_on_message_expiration: bool,
    /// How long messages live at most, if the topic does not say less.
    pub default_message_time_to_live: IsoDuration,
    /// The queue or topic that dead letters go to; empty: they stay in the dead-letter queue.
    pub forward_dead_lettered_messages_to: String,
    /// The queue or topic that messages go to; empty: they stay.
    pub forward_to: String,
    /// How long a message, or a session, is locked.
    pub lock_duration: IsoDuration,
    /// How often a message is delivered before it becomes a dead letter.
    pub max_delivery_count: u32,
    /// Whether each message belongs to a session. Cannot be changed.
    pub requires_session: bool,
    /// Any text, of up to 1024 bytes.
    pub user_metadata: String,
}

/// Why a definition cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    /// A property has a value that it must not have.
    #[error("{entity}: {property} is {value}, but must be {allowed}")]
    Value {
        /// Whose property it is.
        entity: Box<str>,
        /// Which.
        property: &'static str,
        /// What it is.
        value: Box<str>,
        /// What it may be.
        allowed: Box<str>,
    },
    /// It cannot be called that.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two have the same name.
    #[error("{0} is declared twice")]
    Twice(Box<str>),
    /// A rule cannot be understood.
    #[error("{rule}: {why}")]
    Rule {
        /// Which.
        rule: Box<str>,
        /// What is wrong.
        why: Box<str>,
    },
    /// Two properties exclude each other.
    #[error("{entity}: {why}")]
    Contradiction {
        /// Whose properties.
        entity: Box<str>,
        /// What is wrong.
        why: &'static str,
    },
}

impl Default for QueueProperties {
    fn default() -> Self {
        let (topic, subscription) = (TopicProperties::default(), SubscriptionProperties::default());
        Self::of_subscription(&topic, &subscription)
    }
}

impl Default for TopicProperties {
    fn default() -> Self {
        Self {
            default_message_time_to_live: IsoDuration::UNLIMITED,
            duplicate_detection_history_time_window: IsoDuration::seconds(600),
            max_message_size_in_kilobytes: 1024,
            max_size_in_megabytes: 1024,
            requires_duplicate_detection: false,
            user_metadata: String::new(),
        }
    }
}

impl Default for SubscriptionProperties {
    fn default() -> Self {
        Self {
            dead_lettering_on_message_expiration: false,
            default_message_time_to_live: IsoDuration::UNLIMITED,
            forward_dead_lettered_messages_to: String::new(),
            forward_to: String::new(),
            lock_duration: IsoDuration::seconds(60),
            max_delivery_count: 10,
            requires_session: false,
            user_metadata: String::new(),
        }
    }
}

impl Definitions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.topics.is_empty()
    }

    /// Whether all of them can be used, and none is there twice.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        let names = self.queues.iter().map(|queue| &queue.name);
        unique(names.chain(self.topics.iter().map(|topic| &topic.name)), |name| {
            format!("{name:?}")
        })?;
        self.queues.iter().try_for_each(QueueDefinition::check)?;
        self.topics.iter().try_for_each(TopicDefinition::check)
    }
}

impl QueueDefinition {
    /// A queue of that name with the usual properties.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), properties: QueueProperties::default() }
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        path::check_name(Kind::Queue, &self.name)?;
        self.properties.check(&Checked(format!("queue {:?}", self.name)))
    }
}

impl TopicDefinition {
    /// A topic of that name with the usual properties and no subscriptions.
    pub fn new(name: &str) -> Self {
        let properties = TopicProperties::default();
        Self { name: name.into(), properties, subscriptions: Vec::new() }
    }

    /// Whether it can be used, with its subscriptions.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        path::check_name(Kind::Topic, &self.name)?;
        let entity = Checked(format!("topic {:?}", self.name));
        let topic = &self.properties;
        entity.time_to_live(topic.default_message_time_to_live)?;
        entity.history(topic.duplicate_detection_history_time_window)?;
        entity.sizes(topic.max_message_size_in_kilobytes, topic.max_size_in_megabytes)?;
        entity.user_metadata(&topic.user_metadata)?;
        let names = self.subscriptions.iter().map(|subscription| &subscription.name);
        unique(names, |name| format!("subscription {name:?} of {entity}"))?;
        self.subscriptions.iter().try_for_each(|subscription| subscription.check(&self.name))
    }
}

impl SubscriptionDefinition {
    /// A subscription of that name with the usual properties and rules.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), properties: SubscriptionProperties::default(), rules: Vec::new() }
    }

    /// Whether it can be used as one of `topic`.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self, topic: &str) -> Result<(), DefinitionError> {
        path::check_name(Kind::Subscription, &self.name)?;
        let entity = Checked(format!("subscription {:?} of topic {topic:?}", self.name));
        QueueProperties::of_subscription(&TopicProperties::default(), &self.properties)
            .check(&entity)?;
        if self.rules.len() > RULES_MAX {
            let allowed = format!("{RULES_MAX} at most");
            return entity.refuse("the number of Rules", self.rules.len(), allowed);
        }
        unique(self.rules.iter().map(|rule| &rule.name), |name| {
            format!("rule {name:?} of {entity}")
        })?;
        self.rules.iter().try_for_each(|rule| rule.compile().map(|_| ()))
    }
}

impl QueueProperties {
    /// What a subscription does of which these are the properties of the topic.
    pub fn of_subscription(topic: &TopicProperties, own: &SubscriptionProperties) -> Self {
        Self {
            dead_lettering_on_message_expiration: own.dead_lettering_on_message_expiration,
            default_message_time_to_live: own
                .default_message_time_to_live
                .min(topic.default_message_time_to_live),
            duplicate_detection_history_time_window: topic.duplicate_detection_history_time_window,
            forward_dead_lettered_messages_to: own.forward_dead_lettered_messages_to.clone(),
            forward_to: own.forward_to.clone(),
            lock_duration: own.lock_duration,
            max_delivery_count: own.max_delivery_count,
            max_message_size_in_kilobytes: topic.max_message_size_in_kilobytes,
            max_size_in_megabytes: topic.max_size_in_megabytes,
            requires_duplicate_detection: topic.requires_duplicate_detection,
            requires_session: own.requires_session,
            user_metadata: own.user_metadata.clone(),
        }
    }

    /// The key of the entity that messages go to instead.
    pub fn forwards_to(&self) -> Option<Box<str>> {
        target(&self.forward_to)
    }

    /// The key of the entity that dead letters go to instead.
    pub fn forwards_dead_letters_to(&self) -> Option<Box<str>> {
        target(&self.forward_dead_lettered_messages_to)
    }

    /// The same for the core.
    pub fn to_core(&self) -> Properties {
        let bytes = |count: u64, shift: u32| usize::try_from(count << shift).unwrap_or(usize::MAX);
        Properties {
            requires_session: self.requires_session,
            lock_duration: self.lock_duration.get(),
            max_delivery_count: self.max_delivery_count,
            default_time_to_live: self.default_message_time_to_live.limited(),
            dead_lettering_on_expiration: self.dead_lettering_on_message_expiration,
            duplicate_detection: self
                .requires_duplicate_detection
                .then(|| self.duplicate_detection_history_time_window.get()),
            // Each takes memory beside its bytes, however few those are.
            max_messages: bytes(self.max_size_in_megabytes, 20) / MESSAGE_MIN,
            max_bytes: bytes(self.max_size_in_megabytes, 20),
            max_message_size: bytes(self.max_message_size_in_kilobytes, 10),
            max_sessions: SESSIONS_MAX,
        }
    }

    fn check(&self, entity: &Checked) -> Result<(), DefinitionError> {
        entity.within("LockDuration", self.lock_duration, &LOCK_DURATION)?;
        entity.within("MaxDeliveryCount", self.max_delivery_count, &DELIVERIES)?;
        entity.time_to_live(self.default_message_time_to_live)?;
        entity.history(self.duplicate_detection_history_time_window)?;
        entity.sizes(self.max_message_size_in_kilobytes, self.max_size_in_megabytes)?;
        entity.user_metadata(&self.user_metadata)?;
        entity.target("ForwardTo", &self.forward_to)?;
        let dead_letters = &self.forward_dead_lettered_messages_to;
        entity.target("ForwardDeadLetteredMessagesTo", dead_letters)?;
        if self.requires_session && !self.forward_to.is_empty() {
            let why = "RequiresSession and ForwardTo exclude each other: nobody can accept a session of an \
                       entity that forwards. Leave RequiresSession to the one that is forwarded to";
            return Err(DefinitionError::Contradiction { entity: (*entity.0).into(), why });
        }
        Ok(())
    }
}

/// The key that is meant by an address to forward to.
fn target(written: &str) -> Option<Box<str>> {
    (!written.is_empty()).then(|| path::Address::parse(written).entity)
}

fn unique<'a>(
    names: impl Iterator<Item = &'a String>,
    describe: impl Fn(&str) -> String,
) -> Result<(), DefinitionError> {
    let mut known = hashbrown::HashSet::new();
    for name in names {
        if !known.insert(path::key(name)) {
            return Err(DefinitionError::Twice(describe(name).into()));
        }
    }
    Ok(())
}

/// What the properties that are checked belong to, in words.
struct Checked(String);

impl Checked {
    fn refuse(
        &self,
        property: &'static str,
        value: impl fmt::Display,
        allowed: String,
    ) -> Result<(), DefinitionError> {
        let (entity, value) = ((*self.0).into(), value.to_string().into());
        Err(DefinitionError::Value { entity, property, value, allowed: allowed.into() })
    }

    fn within<T: PartialOrd + fmt::Display>(
        &self,
        property: &'static str,
        value: T,
        range: &RangeInclusive<T>,
    ) -> Result<(), DefinitionError> {
        if range.contains(&value) {
            return Ok(());
        }
        self.refuse(property, value, format!("from {} to {}", range.start(), range.end()))
    }

    fn time_to_live(&self, value: IsoDuration) -> Result<(), DefinitionError> {
        if value.get() >= Duration::from_millis(1) {
            return Ok(());
        }
        self.refuse("DefaultMessageTimeToLive", value, "at least a millisecond".into())
    }

    fn history(&self, value: IsoDuration) -> Result<(), DefinitionError> {
        self.within("DuplicateDetectionHistoryTimeWindow", value, &HISTORY)
    }

    fn sizes(&self, kilobytes: u64, megabytes: u64) -> Result<(), DefinitionError> {
        self.within("MaxMessageSizeInKilobytes", kilobytes, &KILOBYTES)?;
        self.within("MaxSizeInMegabytes", megabytes, &MEGABYTES)
    }

    fn user_metadata(&self, text: &str) -> Result<(), DefinitionError> {
        if text.len() <= USER_METADATA_MAX {
            return Ok(());
        }
        let allowed = format!("{USER_METADATA_MAX} bytes at most");
        self.refuse("UserMetadata", format!("{} bytes long", text.len()), allowed)
    }

    fn target(&self, property: &'static str, written: &str) -> Result<(), DefinitionError> {
        let Some(target) = target(written) else { return Ok(()) };
        match path::check_name(Kind::Queue, &target) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.refuse(property, format!("{written:?}"), "the name of a queue or topic".into())
            }
        }
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(json: &str) -> Result<QueueDefinition, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_config_of_the_emulator_is_understood() {
        let definitions: Definitions = serde_json::from_str(
            r#"{
            "Queues": [{ "Name": "queue.1", "Properties": {
                "DeadLetteringOnMessageExpiration": false, "DefaultMessageTimeToLive": "PT1H",
                "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardDeadLetteredMessagesTo": "",
                "ForwardTo": "", "LockDuration": "PT1M", "MaxDeliveryCount": 3,
                "RequiresDuplicateDetection": false, "RequiresSession": true } }],
            "Topics": [{ "Name": "topic.1", "Properties": { "DefaultMessageTimeToLive": "PT1H",
                "DuplicateDetectionHistoryTimeWindow": "PT20S", "RequiresDuplicateDetection": false },
                "Subscriptions": [{ "Name": "subscription.1", "Properties": { "LockDuration": "PT1M",
                    "ForwardTo": "queue.1" },
                    "Rules": [{ "Name": "r", "Properties": { "FilterType": "Sql",
                        "SqlFilter": { "SqlExpression": "a = 1" } } }] }] }]
            }"#,
        )
        .unwrap();
        definitions.check().unwrap();
        let [queue] = &*definitions.queues else { panic!("one queue") };
        let core = queue.properties.to_core();
        assert!(core.requires_session);
        assert_eq!(core.default_time_to_live, Some(Duration::from_secs(3600)));
        assert_eq!((core.max_delivery_count, core.duplicate_detection), (3, None));
        let again: Definitions =
            serde_json::from_str(&serde_json::to_string(&definitions).unwrap()).unwrap();
        assert_eq!(again, definitions);
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let core = queue(r#"{ "Name": "q" }"#).unwrap().properties.to_core();
        assert_eq!((core.lock_duration.as_secs(), core.max_delivery_count), (60, 10));
        assert_eq!((core.default_time_to_live, core.max_message_size), (None, 1 << 20));
        assert_eq!(core.max_bytes, 1 << 30);
    }

    #[test]
    fn an_error_says_whose_property_is_wrong_and_what_it_may_be() {
        let check = |properties: &str| {
            let json = format!(r#"{{ "Name": "sq", "Properties": {{ {properties} }} }}"#);
            queue(&json).unwrap().check().unwrap_err().to_string()
        };
        assert_eq!(
            check(r#""MaxDeliveryCount": 0"#),
            "queue \"sq\": MaxDeliveryCount is 0, but must be from 1 to 2147483647"
        );
        assert_eq!(
            check(r#""LockDuration": "P2D""#),
            "queue \"sq\": LockDuration is P2D, but must be from PT1S to P1D"
        );
        assert_eq!(
            check(r#""ForwardTo": "t/Subscriptions/s""#),
            "queue \"sq\": ForwardTo is \"t/Subscriptions/s\", but must be the name of a queue or topic"
        );
        assert!(check(r#""ForwardTo": "x", "RequiresSession": true"#).contains("exclude"));
        assert!(check(r#""DefaultMessageTimeToLive": "PT0S""#).contains("at least"));
        let unknown =
            queue(r#"{ "Name": "q", "Properties": { "LockDurration": 1 } }"#).unwrap_err();
        assert!(unknown.to_string().starts_with("unknown field `LockDurration`, expected one of"));
        let no_duration = queue(r#"{ "Name": "q", "Properties": { "LockDuration": "1M" } }"#);
        assert_eq!(
            no_duration.unwrap_err().to_string(),
            "`1M` is no duration: a duration is written like PT30S, PT5M, PT1H30M or P14D at line 1 column 53"
        );
    }

    #[test]
    fn nothing_is_declared_twice() {
        let mut definitions = Definitions::default();
        definitions.queues.push(QueueDefinition::new("a"));
        definitions.topics.push(TopicDefinition::new("A"));
        assert_eq!(definitions.check().unwrap_err().to_string(), "\"A\" is declared twice");
        definitions.topics[0].name = "b".into();
        definitions.topics[0].subscriptions = vec![SubscriptionDefinition::new("s"); 2];
        let error = definitions.check().unwrap_err().to_string();
        assert_eq!(error, "subscription \"s\" of topic \"b\" is declared twice");
    }
}
