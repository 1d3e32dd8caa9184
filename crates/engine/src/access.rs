//! Permissions of a client: topics to publish and to subscribe to, and keys of the state store.

use mqtt_proto::topic;
use statestore_proto::Verb;

use crate::key_rules::{KeyRule, KeyRules};
use crate::names::{is_connection_state, is_reserved};

/// The permissions of one client.
#[derive(Debug)]
pub struct Permissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
    /// `None`: all keys.
    state: Option<KeyRules>,
}

/// The rules of one user, as they are configured.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Topic filters that may be published to; `%c` is the client identifier, `%u` the user name.
    pub publish: &'a [String],
    /// Topic filters that may be subscribed to, with the same substitutions.
    pub subscribe: &'a [String],
    /// Rules for keys of the state store; `None`: all keys are allowed.
    pub state: Option<&'a [KeyRule]>,
}

impl Permissions {
    /// Applies the rules of `user` to a client. Rules with `%c` are void if the client identifier would change
    /// their shape.
    pub fn new(rules: Rules<'_>, user: &str, client_id: &str) -> Self {
        let harmless = !client_id.is_empty()
            && !client_id.starts_with('$')
            && !client_id.contains(['+', '#', '/']);
        let filled_in = |rules: &[String]| {
            rules
                .iter()
                .filter(|rule| harmless || !rule.contains("%c"))
                .map(|rule| rule.replace("%u", user).replace("%c", client_id))
                .collect()
        };
        Self {
            publish: filled_in(rules.publish),
            subscribe: filled_in(rules.subscribe),
            state: rules.state.map(|state| KeyRules::new(state, user, client_id)),
        }
    }

    fn may_publish(&self, topic: &str) -> bool {
        self.publish.iter().any(|rule| topic::matches(rule, topic))
    }

    /// Whether the client may subscribe: one rule must allow all that `filter` matches.
    pub(crate) fn may_subscribe(&self, filter: &str) -> bool {
        self.subscribe.iter().any(|rule| covers(rule, filter))
    }

    /// Whether a command to the state store with this verb may touch `key`.
    pub(crate) fn may_touch(&self, verb: Verb, key: &[u8]) -> bool {
        self.state.as_ref().is_none_or(|rules| rules.allow(verb, key))
    }
}

/// Whether a client may publish to a topic, or have its will published there. Without permissions, a client may
/// publish to all topics except those of the broker.
///
/// A client may always publish its own connection state, which is `0`, `1` or empty, whatever its permissions are.
/// No other client can do so, and a bridge that may not is unable to connect.
pub fn may_publish(
    permissions: Option<&Permissions>,
    client_id: &str,
    topic: &str,
    payload: &[u8],
) -> bool {
    if is_reserved(topic) {
        return is_connection_state(topic, client_id) && matches!(payload, b"" | b"0" | b"1");
    }
    permissions.is_none_or(|permissions| permissions.may_publish(topic))
}

/// Whether every topic that `filter` matches is matched by `rule`.
fn covers(rule: &str, filter: &str) -> bool {
    // Leading wildcards do not match topics that begin with `$` (MQTT-4.7.2-1).
    if filter.starts_with('$') && rule.starts_with(['+', '#']) {
        return false;
    }
    let mut wanted = filter.split('/');
    for level in rule.split('/') {
        if level == "#" {
            return true;
        }
        match wanted.next() {
            None | Some("#") => return false,
            Some(want) if level == "+" || level == want => {}
            Some(_) => return false,
        }
    }
    wanted.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_for_the_client() {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        let (publish, subscribe): (Vec<_>, Vec<_>) =
            (owned(&["dev/%c/up", "all/%u/#"]), owned(&["dev/%c/#"]));
        let rules = Rules { publish: &publish, subscribe: &subscribe, state: None };
        let of = |client_id| Permissions::new(rules, "acme/ada", client_id);
        let permissions = of("c1");
        assert!(permissions.may_publish("dev/c1/up"));
        assert!(!permissions.may_publish("dev/c2/up"));
        assert!(permissions.may_publish("all/acme/ada/x"));
        assert!(permissions.may_subscribe("dev/c1/+"));
        assert!(!permissions.may_subscribe("dev/+/up"));
        for widened in ["", "+", "#", "c1/x", "$SYS"] {
            assert!(!of(widened).may_publish("dev/c1/up"), "{widened}");
        }
    }

    #[test]
    fn a_rule_covers_what_it_matches_and_no_more() {
        for (rule, filter, expected) in [
            ("#", "a/+/#", true),
            ("#", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("a/#", "a", true),
            ("a/#", "a/b", true),
            ("a/+", "a/+", true),
            ("a/+", "a/b", true),
            ("a/+", "a/#", false),
            ("a/+", "a/b/c", false),
            ("a/b", "a/+", false),
            ("a/b", "a", false),
            ("+/b", "a/b", true),
        ] {
            assert_eq!(covers(rule, filter), expected, "{rule} covers {filter}");
        }
    }
}
