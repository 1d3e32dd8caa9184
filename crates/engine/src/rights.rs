//! Rights of users as they are written: in the configuration, in databases, in tokens.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::key_rules::{self, KeyKind, KeyRule};
use crate::user_limits::UserLimits;

/// Maximum number of rules of one user, or of one tenant, with those that stand for `publish`, `subscribe` and
/// `state`. Every message may be checked against all of them.
pub const RULES_MAX: usize = 1_000;

/// The rights of a user, and its limits. The rules are tried in order: first `rules`, then the three short forms, then the
/// rules of the tenant. The first that matches decides. A user without any rules may do everything in its
/// tenant; for other users, what no rule matches is denied.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(default)]
pub struct Rights {
    /// The rules, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Topic filters that may be published to, and no others; `%c` stands for the client identifier, `%u` for
    /// the user name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Vec<String>>,
    /// Topic filters that may be subscribed to, and no others, with the same substitutions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<Vec<String>>,
    /// Keys of the state store that may be used, and no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<KeyRule>>,
    /// The limits of this user, instead of those for every user of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<UserLimits>>,
}

impl Rights {
    /// Whether there are no rules, so that those of the tenant decide alone.
    pub fn are_empty(&self) -> bool {
        let Self { rules, publish, subscribe, state, limits: _ } = self;
        rules.is_empty() && publish.is_none() && subscribe.is_none() && state.is_none()
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self, user: &str) -> Result<(), String> {
        let short = [&self.publish, &self.subscribe].into_iter().flatten().map(Vec::len);
        let keys = self.state.iter().flatten().map(|rule| rule.keys.len());
        let count = self.rules.len() + short.chain(keys).sum::<usize>();
        if count > RULES_MAX {
            return Err(format!("{count} rules are too many: a user has at most {RULES_MAX}"));
        }
        for filter in [&self.publish, &self.subscribe].into_iter().flatten().flatten() {
            check_filter(filter, user)?;
        }
        for rule in self.state.iter().flatten() {
            for key in &rule.keys {
                key_rules::check(rule.kind, key)
                    .map_err(|error| format!("key `{key}`: {error}"))?;
            }
        }
        self.rules.iter().try_for_each(|rule| rule.check(user))
    }
}

/// A rule: whether some actions on some topics, keys or entities are allowed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = AccessRule)]
pub struct Rule {
    /// The actions that the rule allows. A rule has either these or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Actions>,
    /// The actions that the rule denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Actions>,
    /// Topic filters, for `publish` and `subscribe`; with `%c` and `%u`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// Patterns of keys, for `read` and `write`; with `{principal.clientId}` and `{principal.username}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Paths of entities, for `send`, `receive` and `manage`, written as topic filters, such as `orders` or
    /// `alarms/#`; with `%c` and `%u`. Their letters match in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entities: Option<Vec<String>>,
    /// The QoS levels for which the rule holds, as they are published with or requested; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<Vec<u8>>,
    /// Whether the rule holds only for messages that are published with RETAIN, or only for those without;
    /// absent: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
}

/// One action, several, or all.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(
    untagged,
    expecting = "`publish`, `subscribe`, `read`, `write`, `send`, `receive`, `manage`, `all`, or a list of these"
)]
pub enum Actions {
    /// One action, or all.
    One(Action),
    /// Several actions.
    Many(Vec<Action>),
}

/// An action that a rule is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Every action of the kinds of targets that the rule names; without targets, every action.
    All,
    /// Publishing to a topic, also by a will.
    Publish,
    /// Subscribing to a topic filter.
    Subscribe,
    /// Reading a key of the state store: GET, KEYNOTIFY, SCAN.
    Read,
    /// Writing a key of the state store: SET, DEL, VDEL.
    Write,
    /// Sending to a queue or topic over AMQP.
    Send,
    /// Receiving from a queue or subscription over AMQP.
    Receive,
    /// Changing the rules of a subscription over AMQP.
    Manage,
}

/// A set of actions, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActionSet(u8);

impl ActionSet {
    const TOPICS: Self = Self(0b000_0011);
    const KEYS: Self = Self(0b000_1100);
    const ENTITIES: Self = Self(0b111_0000);

    pub(crate) fn of(action: Action) -> Self {
        match action {
            Action::All => Self(0b111_1111),
            Action::Publish => Self(1),
            Action::Subscribe => Self(1 << 1),
            Action::Read => Self(1 << 2),
            Action::Write => Self(1 << 3),
            Action::Send => Self(1 << 4),
            Action::Receive => Self(1 << 5),
            Action::Manage => Self(1 << 6),
        }
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Rule {
    /// A rule that allows or denies some actions everywhere.
    pub fn everywhere(allows: bool, action: Action) -> Self {
        let actions = Some(Actions::One(action));
        if allows {
            Self { allow: actions, ..Self::default() }
        } else {
            Self { deny: actions, ..Self::default() }
        }
    }

    /// Whether the rule allows what it matches.
    pub(crate) fn allows(&self) -> bool {
        self.allow.is_some()
    }

    /// Returns the actions on topics, on keys and on entities that the rule matches.
    pub(crate) fn actions(&self) -> [ActionSet; 3] {
        let named = match self.allow.as_ref().or(self.deny.as_ref()) {
            None => ActionSet::default(),
            Some(Actions::One(action)) => ActionSet::of(*action),
            Some(Actions::Many(actions)) => {
                ActionSet(actions.iter().fold(0, |set, action| set | ActionSet::of(*action).0))
            }
        };
        // A rule that names targets is about their kinds only.
        let is_general = self.topics.is_none() && self.keys.is_none() && self.entities.is_none();
        let of = |kind: ActionSet, is_named: bool| {
            ActionSet(if is_general || is_named { named.0 & kind.0 } else { 0 })
        };
        [
            of(ActionSet::TOPICS, self.topics.is_some()),
            of(ActionSet::KEYS, self.keys.is_some()),
            of(ActionSet::ENTITIES, self.entities.is_some()),
        ]
    }

    /// Checks what the types do not. `user`: a user that the rule is for.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self, user: &str) -> Result<(), String> {
        match (&self.allow, &self.deny) {
            (Some(_), Some(_)) => return Err("a rule has either `allow` or `deny`".into()),
            (None, None) => {
                return Err("a rule needs `allow` or `deny`, such as allow = \"publish\"".into());
            }
            _ => {}
        }
        let [topics, keys, entities] = self.actions();
        for (named, set, what) in [
            (self.topics.is_some(), topics, "`topics` are for publish and subscribe"),
            (self.keys.is_some(), keys, "`keys` are for read and write"),
            (self.entities.is_some(), entities, "`entities` are for send, receive and manage"),
        ] {
            if named && set == ActionSet::default() {
                return Err(format!("{what}, and the rule names no such action"));
            }
        }
        if let Some(Actions::Many(actions)) = self.allow.as_ref().or(self.deny.as_ref()) {
            let mut covered = actions.iter().map(|action| ActionSet::of(*action));
            let all = topics.0 | keys.0 | entities.0;
            if actions.is_empty() || !covered.all(|set| set.0 & all != 0) {
                return Err(
                    "the rule names actions that are not on its topics, keys or entities".into()
                );
            }
        }
        if self
            .qos
            .as_ref()
            .is_some_and(|levels| levels.is_empty() || levels.iter().any(|qos| *qos > 2))
        {
            return Err("`qos` is a list of 0, 1 and 2".into());
        }
        if (self.qos.is_some() || self.retain.is_some()) && topics == ActionSet::default() {
            return Err("`qos` and `retain` are for publish and subscribe".into());
        }
        for filter in self.topics.iter().chain(&self.entities).flatten() {
            check_filter(filter, user)?;
        }
        for key in self.keys.iter().flatten() {
            key_rules::check(KeyKind::Pattern, key)
                .map_err(|error| format!("key `{key}`: {error}"))?;
        }
        Ok(())
    }
}

/// Checks a topic filter with `%c` and `%u`.
fn check_filter(filter: &str, user: &str) -> Result<(), String> {
    if filter.contains("%u") && user.contains(['+', '#']) {
        return Err("%u stands for the user name, whose + or # would be wildcards".into());
    }
    // The values of %c and %u at run time contain no wildcards.
    let substituted = filter.replace("%c", "c").replace("%u", "u");
    mqtt_proto::topic::validate_filter(&substituted)
        .map_err(|error| format!("`{filter}` is not a topic filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Rights, String> {
        let rights: Rights = serde_json::from_str(json).map_err(|error| error.to_string())?;
        rights.check("acme/ada").map(|()| rights)
    }

    #[test]
    fn rules_are_read_and_written() {
        let text = r##"{"rules":[{"deny":"publish","topics":["config/#"],"retain":true},{"allow":["publish","subscribe"],"topics":["dev/%c/#"],"qos":[0,1]},{"allow":"all","keys":["a*"]},{"deny":"all"}]}"##;
        let rights = parse(text).unwrap();
        assert_eq!(serde_json::to_string(&rights).unwrap(), text);
        assert!(parse("{}").unwrap().are_empty());
        let limited = parse(r#"{"limits":{"publish_rate":10}}"#).unwrap();
        assert!(limited.are_empty(), "a limit is no rule");
        assert_eq!(limited.limits.unwrap().publish_rate, Some(10));
    }

    #[test]
    fn what_a_rule_cannot_mean_is_told() {
        for (rule, expected) in [
            (r#"{"topics":["a"]}"#, "needs `allow` or `deny`"),
            (r#"{"allow":"all","deny":"all"}"#, "either"),
            (r#"{"allow":"publish","keys":["a"]}"#, "`keys` are for read and write"),
            (r#"{"allow":["publish","read"],"topics":["a"]}"#, "not on its topics"),
            (r#"{"allow":[]}"#, "not on its topics"),
            (r#"{"allow":"publish","qos":[3]}"#, "0, 1 and 2"),
            (r#"{"allow":"send","qos":[1]}"#, "for publish and subscribe"),
            (r##"{"allow":"publish","topics":["a/#/b"]}"##, "not a topic filter"),
            (r#"{"allow":"read","keys":["{x}"]}"#, "key `{x}`"),
            (r#"{"allow":"fly"}"#, "or a list of these"),
        ] {
            let error = parse(&format!(r#"{{"rules":[{rule}]}}"#)).unwrap_err();
            assert!(error.contains(expected), "{rule}: {error}");
        }
        let many = r#"{"allow":"publish"},"#.repeat(RULES_MAX + 1);
        let error = parse(&format!(r#"{{"rules":[{}]}}"#, many.trim_end_matches(','))).unwrap_err();
        assert!(error.contains("at most"), "{error}");
    }
}
