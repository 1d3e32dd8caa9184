//! Properties of entities as flags, with the names that Service Bus gives them.

use clap::Args;
use serde_json::{Map, Value};

use crate::span;

/// Flags that set properties.
pub trait Given {
    /// Returns the properties that were given, by name.
    fn given(&self) -> Map<String, Value>;
}

/// Properties of a queue.
#[derive(Args)]
pub struct QueueProperties {
    #[command(flatten)]
    receiving: Receiving,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    common: Common,
}

/// Properties of a topic.
#[derive(Args)]
pub struct TopicProperties {
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    common: Common,
}

/// Properties of a subscription.
#[derive(Args)]
pub struct SubscriptionProperties {
    #[command(flatten)]
    receiving: Receiving,
    #[command(flatten)]
    common: Common,
}

impl Given for QueueProperties {
    fn given(&self) -> Map<String, Value> {
        let mut given = Map::new();
        self.receiving.add_to(&mut given);
        self.storing.add_to(&mut given);
        self.common.add_to(&mut given);
        given
    }
}

impl Given for TopicProperties {
    fn given(&self) -> Map<String, Value> {
        let mut given = Map::new();
        self.storing.add_to(&mut given);
        self.common.add_to(&mut given);
        given
    }
}

impl Given for SubscriptionProperties {
    fn given(&self) -> Map<String, Value> {
        let mut given = Map::new();
        self.receiving.add_to(&mut given);
        self.common.add_to(&mut given);
        given
    }
}

/// Properties that concern receivers.
#[derive(Args)]
struct Receiving {
    /// Each message belongs to a session; cannot be changed later
    #[arg(long, visible_alias = "enable-session", value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    requires_session: Option<bool>,
    /// How long a message, or a session, is locked: 30, 30s, 5m, PT1M [default: PT1M]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    lock_duration: Option<String>,
    /// Number of deliveries after which a message becomes a dead letter [default: 10]
    #[arg(long, value_name = "N")]
    max_delivery_count: Option<u32>,
    /// Messages that expire become dead letters instead of being deleted
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    dead_lettering_on_message_expiration: Option<bool>,
    /// Queue or topic that messages are forwarded to; empty: none
    #[arg(long, value_name = "NAME")]
    forward_to: Option<String>,
    /// Queue or topic that dead letters are forwarded to; empty: none
    #[arg(long, value_name = "NAME")]
    forward_dead_lettered_messages_to: Option<String>,
}

/// Properties that concern senders.
#[derive(Args)]
struct Storing {
    /// Drop messages whose id was seen recently; cannot be changed later
    #[arg(long, visible_alias = "enable-duplicate-detection", value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    requires_duplicate_detection: Option<bool>,
    /// How long a message id is remembered: 20, 20s, 10m, PT10M [default: PT10M]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duplicate_detection_history_time_window: Option<String>,
    /// Maximum size of messages and session states together, in MiB [default: 1024]
    #[arg(long, visible_alias = "max-size", value_name = "MIB")]
    max_size_in_megabytes: Option<u64>,
    /// Maximum size of a message, and of a session state, in KiB [default: 1024]
    #[arg(long, visible_alias = "max-message-size", value_name = "KIB")]
    max_message_size_in_kilobytes: Option<u64>,
}

/// Properties of all entities.
#[derive(Args)]
struct Common {
    /// Maximum time to live of messages: 3600, 1h, 14d, P14D [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    default_message_time_to_live: Option<String>,
    /// Delete the entity, with all its messages, when nobody has used it for so long: 5m, PT5M [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_delete_on_idle: Option<String>,
    /// Whether clients may send and receive [default: Active]
    #[arg(long, value_name = "STATUS", value_parser = ["Active", "Disabled", "SendDisabled", "ReceiveDisabled"], ignore_case = true)]
    status: Option<String>,
    /// Any text, of up to 1024 bytes
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
}

impl Receiving {
    fn add_to(&self, given: &mut Map<String, Value>) {
        add(given, "RequiresSession", self.requires_session);
        add(given, "LockDuration", self.lock_duration.clone());
        add(given, "MaxDeliveryCount", self.max_delivery_count);
        let expiration = self.dead_lettering_on_message_expiration;
        add(given, "DeadLetteringOnMessageExpiration", expiration);
        add(given, "ForwardTo", self.forward_to.clone());
        let dead_letters = self.forward_dead_lettered_messages_to.clone();
        add(given, "ForwardDeadLetteredMessagesTo", dead_letters);
    }
}

impl Storing {
    fn add_to(&self, given: &mut Map<String, Value>) {
        add(given, "RequiresDuplicateDetection", self.requires_duplicate_detection);
        let window = self.duplicate_detection_history_time_window.clone();
        add(given, "DuplicateDetectionHistoryTimeWindow", window);
        add(given, "MaxSizeInMegabytes", self.max_size_in_megabytes);
        add(given, "MaxMessageSizeInKilobytes", self.max_message_size_in_kilobytes);
    }
}

impl Common {
    fn add_to(&self, given: &mut Map<String, Value>) {
        let time_to_live = self.default_message_time_to_live.clone();
        add(given, "DefaultMessageTimeToLive", time_to_live);
        add(given, "AutoDeleteOnIdle", self.auto_delete_on_idle.clone());
        add(given, "Status", self.status.clone());
        add(given, "UserMetadata", self.user_metadata.clone());
    }
}

fn add(given: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        given.insert(name.into(), value.into());
    }
}

/// Reads a span of time. In ISO 8601 it begins with `P` and the broker checks it; otherwise the format is
/// that of all other commands.
fn parse_span(text: &str) -> Result<String, String> {
    if text.starts_with('P') {
        return Ok(text.into());
    }
    let span = span::parse_some(text).map_err(|error| format!("{error}, or PT1M"))?;
    Ok(match span.subsec_millis() {
        0 => format!("PT{}S", span.as_secs()),
        millis => format!("PT{}.{millis:03}S", span.as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        properties: QueueProperties,
    }

    #[track_caller]
    fn check(flags: &[&str], given: &Value) {
        let flags = std::iter::once(&"barid").chain(flags);
        let flags = Flags::try_parse_from(flags).unwrap();
        assert_eq!(Value::from(flags.properties.given()), *given);
    }

    #[test]
    fn only_what_is_given_is_told() {
        check(&[], &json!({}));
        check(&["--requires-session"], &json!({ "RequiresSession": true }));
        check(&["--enable-session=false"], &json!({ "RequiresSession": false }));
        check(
            &[
                "--lock-duration",
                "90s",
                "--default-message-time-to-live",
                "P14D",
                "--forward-to",
                "",
            ],
            &json!({ "LockDuration": "PT90S", "DefaultMessageTimeToLive": "P14D", "ForwardTo": "" }),
        );
        check(&["--lock-duration", "1500ms"], &json!({ "LockDuration": "PT1.500S" }));
        check(
            &["--max-delivery-count", "3", "--max-size", "5", "--requires-duplicate-detection"],
            &json!({ "MaxDeliveryCount": 3, "MaxSizeInMegabytes": 5, "RequiresDuplicateDetection": true }),
        );
        check(&["--lock-duration", "30"], &json!({ "LockDuration": "PT30S" }));
        assert!(parse_span("1 minute").unwrap_err().contains("PT1M"));
    }
}
