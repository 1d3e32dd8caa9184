//! Durability classes: what an acknowledgement promises.

use mqtt_proto::{Properties, topic};
use serde::{Deserialize, Serialize};
use statestore_proto::Glob;
use statestore_proto::properties::PERSIST;
use utoipa::ToSchema;

/// The condition for acknowledging a QoS 1 or 2 message to its publisher.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityClass {
    /// No condition: the message is lost if the broker ends before it is delivered.
    Memory,
    /// The message is on this machine's disk (fsync) for every matching persistent session.
    #[default]
    Local,
    /// As `local`, on several machines. Reserved: this version refuses it.
    Replicated,
}

/// The durability class for some topics, or for some keys of the state store: exactly one of `filter` and
/// `keys` is given.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DurabilityRule {
    /// The topic filter.
    pub filter: Option<String>,
    /// The pattern of the keys, with `*`, `?` and `[0-9]`.
    pub keys: Option<String>,
    /// The durability class.
    pub class: DurabilityClass,
    /// The tenant to which the rule applies; `None`: all tenants.
    pub tenant: Option<String>,
}

/// Whether the sender asks for a session, a retained message or a key to be stored although its class does
/// not require that. The sender asks with the user property `aio-persistence`.
pub(crate) fn asks_to_persist(properties: Properties<'_>) -> bool {
    properties.user_properties().any(|property| property == (PERSIST, "true"))
}

/// The classes of one tenant.
#[derive(Clone, Debug, Default)]
pub struct Durability {
    class: DurabilityClass,
    topics: Vec<(Box<str>, DurabilityClass)>,
    keys: Vec<(Glob, DurabilityClass)>,
}

impl DurabilityClass {
    /// The name of the class, as in the configuration and in CONNACK.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "local",
            Self::Replicated => "replicated",
        }
    }

    /// Whether messages and keys of this class are written to the disk.
    pub fn is_stored(self) -> bool {
        self != Self::Memory
    }
}

impl Durability {
    /// Creates the classes of a tenant: its own class, and the rules that apply to it. The first rule that
    /// matches a topic or a key decides.
    pub fn new<'a>(
        tenant: &str,
        class: DurabilityClass,
        rules: impl IntoIterator<Item = &'a DurabilityRule>,
    ) -> Self {
        let applies =
            |rule: &&DurabilityRule| rule.tenant.as_ref().is_none_or(|only| only == tenant);
        let rules: Vec<_> = rules.into_iter().filter(applies).collect();
        let topics =
            rules.iter().filter_map(|rule| Some((rule.filter.as_deref()?.into(), rule.class)));
        let keys = rules
            .iter()
            .filter_map(|rule| Some((Glob::parse(rule.keys.as_ref()?.as_bytes()), rule.class)));
        Self { class, topics: topics.collect(), keys: keys.collect() }
    }

    /// The class of messages to a topic. The `$SYS` topics of the broker are not stored.
    pub fn of(&self, topic: &str) -> DurabilityClass {
        if topic.starts_with("$SYS/") {
            return DurabilityClass::Memory;
        }
        self.topics
            .iter()
            .find(|(filter, _)| topic::matches(filter, topic))
            .map_or(self.class, |(_, class)| *class)
    }

    /// The class of a key of the state store.
    pub fn of_key(&self, key: &[u8]) -> DurabilityClass {
        self.keys.iter().find(|(keys, _)| keys.matches(key)).map_or(self.class, |(_, class)| *class)
    }

    /// Whether persistent sessions are stored: that is the case if any message that they get may be stored.
    pub(crate) fn stores_sessions(&self) -> bool {
        self.class.is_stored() || self.topics.iter().any(|(_, class)| class.is_stored())
    }

    /// The texts for a client that asks in CONNECT: the class, followed by each rule with its filter.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        let rules = self.topics.iter().map(|(filter, class)| format!("{} {filter}", class.name()));
        std::iter::once(self.class.name().to_owned()).chain(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(filter: &str, class: DurabilityClass, tenant: Option<&str>) -> DurabilityRule {
        let (filter, tenant) = (Some(filter.into()), tenant.map(Into::into));
        DurabilityRule { filter, keys: None, class, tenant }
    }

    #[test]
    fn keys_have_classes_of_their_own() {
        let keys = |keys: &str, class| DurabilityRule {
            filter: None,
            keys: Some(keys.into()),
            class,
            tenant: None,
        };
        let rules = [
            keys("cache:pinned", DurabilityClass::Local),
            keys("cache:*", DurabilityClass::Memory),
            rule("#", DurabilityClass::Memory, None),
        ];
        let durability = Durability::new("acme", DurabilityClass::Local, &rules);
        assert_eq!(durability.of_key(b"cache:pinned"), DurabilityClass::Local);
        assert_eq!(durability.of_key(b"cache:x"), DurabilityClass::Memory);
        assert_eq!(durability.of_key(b"x"), DurabilityClass::Local);
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = [
            rule("a/b", DurabilityClass::Local, None),
            rule("a/#", DurabilityClass::Memory, None),
            rule("#", DurabilityClass::Memory, Some("other")),
        ];
        let durability = Durability::new("acme", DurabilityClass::Local, &rules);
        assert_eq!(durability.of("a/b"), DurabilityClass::Local);
        assert_eq!(durability.of("a/c"), DurabilityClass::Memory);
        assert_eq!(durability.of("b"), DurabilityClass::Local);
        let told: Vec<_> = durability.describe().collect();
        assert_eq!(told, ["local", "local a/b", "memory a/#"]);
        let memory = Durability::new("acme", DurabilityClass::Memory, &rules[1..]);
        assert!(!memory.stores_sessions());
        let partly = Durability::new("acme", DurabilityClass::Memory, &rules);
        assert!(partly.stores_sessions());
    }
}
