//! Definitions of queues, topics and subscriptions.
//!
//! Names and structure are those of the `Config.json` of Microsoft's emulator for Service Bus, so that Barid
//! accepts such a file unchanged. The limits are wider:
//!
//! | property | default | from | to |
//! | --- | --- | --- | --- |
//! | `AutoDeleteOnIdle` | no limit | `PT1S` | no limit |
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
use utoipa::ToSchema;

use super::iso8601::IsoDuration;
use super::path::{self, Kind, NameError};
use super::rule::RuleDefinition;

/// Maximum number of rules of a subscription. A definition with more is refused.
pub const RULES_MAX: usize = 100;

const LOCK_DURATION: RangeInclusive<IsoDuration> =
    IsoDuration::seconds(1)..=IsoDuration::seconds(86_400);
const HISTORY: RangeInclusive<IsoDuration> =
    IsoDuration::seconds(1)..=IsoDuration::seconds(7 * 86_400);
const DELIVERIES: RangeInclusive<u32> = 1..=0x7fff_ffff;
const MEGABYTES: RangeInclusive<u64> = 1..=1_048_576;
const KILOBYTES: RangeInclusive<u64> = 1..=102_400;
const USER_METADATA_MAX: usize = 1024;

/// Minimum size that a message counts as, in bytes: the size limit of an entity divided by it is the maximum number
/// of messages.
const MESSAGE_MIN: usize = 512;

/// Maximum number of sessions of one queue or subscription at a time: those with a message, a state or a lock.
const SESSIONS_MAX: usize = 10_000_000;

/// All entities that a configuration declares for a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct Definitions {
    /// The queues.
    pub queues: Vec<QueueDefinition>,
    /// The topics, with their subscriptions and rules.
    pub topics: Vec<TopicDefinition>,
}

/// The definition of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct QueueDefinition {
    /// The path; see [`path::check_name`].
    pub name: String,
    /// The properties.
    #[serde(default)]
    pub properties: QueueProperties,
}

/// The definition of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct TopicDefinition {
    /// The path; see [`path::check_name`].
    pub name: String,
    /// The properties.
    #[serde(default)]
    pub properties: TopicProperties,
    /// The subscriptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<SubscriptionDefinition>,
}

/// The definition of a topic's subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct SubscriptionDefinition {
    /// The name, unique in the topic; see [`path::check_name`].
    pub name: String,
    /// The properties.
    #[serde(default)]
    pub properties: SubscriptionProperties,
    /// The rules. The subscription takes the messages that any of them matches. A subscription that is created
    /// without rules gets `$Default`, which matches all messages; a subscription whose rules have all been removed
    /// takes none.
    #[serde(default)]
    pub rules: Vec<RuleDefinition>,
}

/// Properties of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct QueueProperties {
    /// Duration without use after which the queue is deleted with all its messages. Receivers and scheduled messages
    /// are uses.
    #[serde(skip_serializing_if = "IsoDuration::is_unlimited")]
    pub auto_delete_on_idle: IsoDuration,
    /// Whether expired messages become dead letters; otherwise they are removed.
    pub dead_lettering_on_message_expiration: bool,
    /// Maximum time to live, which is also that of messages without their own.
    pub default_message_time_to_live: IsoDuration,
    /// Duration for which message ids are remembered.
    pub duplicate_detection_history_time_window: IsoDuration,
    /// Has no effect, because the broker batches by itself. Kept for clients that compare what they find with what they
    /// have set.
    #[serde(skip_serializing_if = "is_true")]
    pub enable_batched_operations: bool,
    /// Has no effect, like `enable_batched_operations`.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_express: bool,
    /// Has no effect, like `enable_batched_operations`.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_partitioning: bool,
    /// The queue or topic to which dead letters are moved. If empty, they stay in the dead-letter queue.
    pub forward_dead_lettered_messages_to: String,
    /// The queue or topic to which messages are forwarded. If empty, they stay.
    pub forward_to: String,
    /// Duration of the lock on a message or a session.
    pub lock_duration: IsoDuration,
    /// Delivery count at which a message becomes a dead letter.
    pub max_delivery_count: u32,
    /// Maximum size of a message, and of the state of a session, in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// Maximum size of all messages and states together, in MiB.
    pub max_size_in_megabytes: u64,
    /// Whether a message with a remembered id is dropped. Cannot be changed.
    pub requires_duplicate_detection: bool,
    /// Whether each message belongs to a session. Cannot be changed.
    pub requires_session: bool,
    /// Whether clients may send to it and receive from it.
    #[serde(skip_serializing_if = "Status::is_active")]
    pub status: Status,
    /// Any text of up to 1024 bytes.
    pub user_metadata: String,
}

/// Properties of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct TopicProperties {
    /// Duration without use after which the topic is deleted with all its messages. Receivers and scheduled messages
    /// are uses.
    #[serde(skip_serializing_if = "IsoDuration::is_unlimited")]
    pub auto_delete_on_idle: IsoDuration,
    /// Maximum time to live, which is also that of messages without their own.
    pub default_message_time_to_live: IsoDuration,
    /// Duration for which message ids are remembered.
    pub duplicate_detection_history_time_window: IsoDuration,
    /// Has no effect, because the broker batches by itself. Kept for clients that compare what they find with what they
    /// have set.
    #[serde(skip_serializing_if = "is_true")]
    pub enable_batched_operations: bool,
    /// Has no effect, like `enable_batched_operations`.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_express: bool,
    /// Has no effect, like `enable_batched_operations`.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_partitioning: bool,
    /// Maximum size of a message, in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// Maximum size of all messages in each subscription, in MiB.
    pub max_size_in_megabytes: u64,
    /// Whether a message with a remembered id is dropped. Cannot be changed.
    pub requires_duplicate_detection: bool,
    /// Has no effect, like `enable_batched_operations`: each subscription keeps the order.
    #[serde(skip_serializing_if = "is_true")]
    pub support_ordering: bool,
    /// Whether clients may send to it and receive from it.
    #[serde(skip_serializing_if = "Status::is_active")]
    pub status: Status,
    /// Any text of up to 1024 bytes.
    pub user_metadata: String,
}

/// Properties of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct SubscriptionProperties {
    /// Duration without use after which the subscription is deleted with all its messages. Receivers and scheduled messages
    /// are uses.
    #[serde(skip_serializing_if = "IsoDuration::is_unlimited")]
    pub auto_delete_on_idle: IsoDuration,
    /// Whether expired messages become dead letters; otherwise they are removed.
    pub dead_lettering_on_message_expiration: bool,
    /// Maximum time to live, unless that of the topic is shorter.
    pub default_message_time_to_live: IsoDuration,
    /// Has no effect, because the broker batches by itself. Kept for clients that compare what they find with what they
    /// have set.
    #[serde(skip_serializing_if = "is_true")]
    pub enable_batched_operations: bool,
    /// The queue or topic to which dead letters are moved. If empty, they stay in the dead-letter queue.
    pub forward_dead_lettered_messages_to: String,
    /// The queue or topic to which messages are forwarded. If empty, they stay.
    pub forward_to: String,
    /// Duration of the lock on a message or a session.
    pub lock_duration: IsoDuration,
    /// Delivery count at which a message becomes a dead letter.
    pub max_delivery_count: u32,
    /// Whether each message belongs to a session. Cannot be changed.
    pub requires_session: bool,
    /// Whether clients may send to it and receive from it.
    #[serde(skip_serializing_if = "Status::is_active")]
    pub status: Status,
    /// Any text of up to 1024 bytes.
    pub user_metadata: String,
}

/// Whether clients may send to an entity and receive from it. What other entities and bindings do does not depend on it,
/// except that nothing enters over a binding where clients may not send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EntityStatus)]
pub enum Status {
    /// They may do both.
    #[default]
    Active,
    /// They may do neither.
    Disabled,
    /// They may receive.
    SendDisabled,
    /// They may send.
    ReceiveDisabled,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Active, Self::Disabled, Self::SendDisabled, Self::ReceiveDisabled];

    /// Whether clients may do everything.
    pub fn is_active(&self) -> bool {
        *self == Self::Active
    }

    /// Whether clients may send.
    pub fn may_send(self) -> bool {
        matches!(self, Self::Active | Self::ReceiveDisabled)
    }

    /// Whether clients may receive.
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Active | Self::SendDisabled)
    }
}

/// Reason for which a definition is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    /// A property has an invalid value.
    #[error("{entity}: {property} is {value}, but must be {allowed}")]
    Value {
        /// The entity.
        entity: Box<str>,
        /// The property.
        property: &'static str,
        /// The invalid value.
        value: Box<str>,
        /// The valid values.
        allowed: Box<str>,
    },
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two entities, or two rules of a subscription, have the same name.
    #[error("{0} is declared twice")]
    Twice(Box<str>),
    /// A rule is invalid.
    #[error("{rule}: {why}")]
    Rule {
        /// The rule.
        rule: Box<str>,
        /// The reason.
        why: Box<str>,
    },
    /// Two properties exclude each other.
    #[error("{entity}: {why}")]
    Contradiction {
        /// The entity.
        entity: Box<str>,
        /// The reason.
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
            auto_delete_on_idle: IsoDuration::UNLIMITED,
            default_message_time_to_live: IsoDuration::UNLIMITED,
            duplicate_detection_history_time_window: IsoDuration::seconds(600),
            enable_batched_operations: true,
            enable_express: false,
            enable_partitioning: false,
            max_message_size_in_kilobytes: 1024,
            max_size_in_megabytes: 1024,
            requires_duplicate_detection: false,
            support_ordering: true,
            status: Status::Active,
            user_metadata: String::new(),
        }
    }
}

impl Default for SubscriptionProperties {
    fn default() -> Self {
        Self {
            auto_delete_on_idle: IsoDuration::UNLIMITED,
            dead_lettering_on_message_expiration: false,
            default_message_time_to_live: IsoDuration::UNLIMITED,
            enable_batched_operations: true,
            forward_dead_lettered_messages_to: String::new(),
            forward_to: String::new(),
            lock_duration: IsoDuration::seconds(60),
            max_delivery_count: 10,
            requires_session: false,
            status: Status::Active,
            user_metadata: String::new(),
        }
    }
}

impl Definitions {
    /// Whether no entities are declared.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.topics.is_empty()
    }

    /// Checks that all definitions are valid, and that none is declared twice.
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
    /// Returns the definition of a queue with the default properties.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), properties: QueueProperties::default() }
    }

    /// Checks the definition.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        path::check_name(Kind::Queue, &self.name)?;
        self.properties.check(&Checked(format!("queue {:?}", self.name)))
    }
}

impl TopicDefinition {
    /// Returns the definition of a topic with the default properties and no subscriptions.
    pub fn new(name: &str) -> Self {
        let properties = TopicProperties::default();
        Self { name: name.into(), properties, subscriptions: Vec::new() }
    }

    /// Checks the definition and those of its subscriptions.
    ///
    /// # Errors
    /// The first [`DefinitionError`].
    pub fn check(&self) -> Result<(), DefinitionError> {
        path::check_name(Kind::Topic, &self.name)?;
        let entity = Checked(format!("topic {:?}", self.name));
        let topic = &self.properties;
        entity.idle(topic.auto_delete_on_idle)?;
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
    /// Returns the definition of a subscription with the default properties and without rules, so that it is
    /// created with the default rule.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), properties: SubscriptionProperties::default(), rules: Vec::new() }
    }

    /// Checks the definition as that of a subscription of `topic`.
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
        self.rules.iter().try_for_each(RuleDefinition::check)
    }
}

impl QueueProperties {
    /// Returns the properties in effect for a subscription: its own, and those that it inherits from its topic.
    pub fn of_subscription(topic: &TopicProperties, own: &SubscriptionProperties) -> Self {
        Self {
            auto_delete_on_idle: own.auto_delete_on_idle,
            dead_lettering_on_message_expiration: own.dead_lettering_on_message_expiration,
            default_message_time_to_live: own
                .default_message_time_to_live
                .min(topic.default_message_time_to_live),
            duplicate_detection_history_time_window: topic.duplicate_detection_history_time_window,
            enable_batched_operations: own.enable_batched_operations,
            enable_express: false,
            enable_partitioning: false,
            forward_dead_lettered_messages_to: own.forward_dead_lettered_messages_to.clone(),
            forward_to: own.forward_to.clone(),
            lock_duration: own.lock_duration,
            max_delivery_count: own.max_delivery_count,
            max_message_size_in_kilobytes: topic.max_message_size_in_kilobytes,
            max_size_in_megabytes: topic.max_size_in_megabytes,
            requires_duplicate_detection: topic.requires_duplicate_detection,
            requires_session: own.requires_session,
            status: own.status,
            user_metadata: own.user_metadata.clone(),
        }
    }

    /// The key of the entity to which messages are forwarded.
    pub fn forwards_to(&self) -> Option<Box<str>> {
        target(&self.forward_to)
    }

    /// The key of the entity to which dead letters are moved.
    pub fn forwards_dead_letters_to(&self) -> Option<Box<str>> {
        target(&self.forward_dead_lettered_messages_to)
    }

    /// Converts the properties to those of the core.
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
            // Each message takes memory beside its bytes, however few those are.
            max_messages: bytes(self.max_size_in_megabytes, 20) / MESSAGE_MIN,
            max_bytes: bytes(self.max_size_in_megabytes, 20),
            max_message_size: bytes(self.max_message_size_in_kilobytes, 10),
            max_sessions: SESSIONS_MAX,
        }
    }

    fn check(&self, entity: &Checked) -> Result<(), DefinitionError> {
        entity.idle(self.auto_delete_on_idle)?;
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
            let why = "RequiresSession and ForwardTo exclude each other: sessions of an entity that forwards \
                       cannot be accepted. Set RequiresSession of the entity in ForwardTo instead";
            return Err(DefinitionError::Contradiction { entity: (*entity.0).into(), why });
        }
        Ok(())
    }
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the key of the entity that an address to forward to names; `None` if the address is empty.
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

/// The description of the entity whose properties are checked, for error messages.
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

    fn idle(&self, value: IsoDuration) -> Result<(), DefinitionError> {
        if value >= IsoDuration::seconds(1) {
            return Ok(());
        }
        self.refuse("AutoDeleteOnIdle", value, "at least a second".into())
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
