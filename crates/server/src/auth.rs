//! Who may connect, and what they may publish and subscribe to.
//!
//! Verifying a password takes milliseconds on purpose, so no IO thread does it: a
//! `Verifier` has threads of its own, and posts the verdict.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use mqtt_proto::topic;
use statestore_proto::Verb;

use crate::key_rules::KeyRules;
use crate::names::{full_name, is_connection_state, is_reserved, tenant_of};
use crate::password;
use crate::settings::User;

/// Bytes of the longest password that is verified.
pub const PASSWORD_MAX: usize = 4 * 1024;

/// Whether a client may connect, and what it may do.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may; without permissions, everything in its tenant.
    Allowed(Option<Arc<Permissions>>),
    /// User name or password are wrong.
    Denied,
    /// Nobody has looked: too many logins wait, most of them from the same address.
    Busy,
}

/// What one client may do.
#[derive(Debug)]
pub struct Permissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
    /// `None`: all keys.
    state: Option<KeyRules>,
}

impl Permissions {
    /// The permissions of `user` for a client; `%c` and `%u` in the rules are replaced. A client
    /// identifier that would change the shape of a rule makes it void.
    fn new(user: &User, client_id: &str) -> Self {
        let harmless = !client_id.is_empty()
            && !client_id.starts_with('$')
            && !client_id.contains(['+', '#', '/']);
        let rules = |rules: &[String]| {
            rules
                .iter()
                .filter(|rule| harmless || !rule.contains("%c"))
                .map(|rule| rule.replace("%u", &user.name).replace("%c", client_id))
                .collect()
        };
        let state = user.state.as_ref();
        Self {
            publish: rules(&user.publish),
            subscribe: rules(&user.subscribe),
            state: state.map(|state| KeyRules::new(state, &user.name, client_id)),
        }
    }

    fn may_publish(&self, topic: &str) -> bool {
        self.publish.iter().any(|rule| topic::matches(rule, topic))
    }

    /// Whether it may subscribe: whether all that `filter` matches is allowed by one rule.
    pub fn may_subscribe(&self, filter: &str) -> bool {
        self.subscribe.iter().any(|rule| covers(rule, filter))
    }

    /// Whether a command to the state store with this verb may touch `key`.
    pub fn may_touch(&self, verb: Verb, key: &[u8]) -> bool {
        self.state.as_ref().is_none_or(|rules| rules.allow(verb, key))
    }
}

/// Whether a client may publish to a topic, or have its will published there. Without permissions it may
/// publish everything but what is the broker's own. Its state as a bridge, which is `0` or
/// `1`, it may tell whatever its permissions are: nobody else can, and a bridge that may not is unable to connect.
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

/// The users. None at all: everybody may connect.
#[derive(Debug, Default)]
pub struct Users {
    all: Vec<User>,
    /// Where each is in `all`, by its full name.
    by_name: HashMap<String, usize>,
    /// The tenants that they belong to.
    tenants: HashSet<String>,
    /// Which user's hash is used for a name that nobody has.
    decoys: RandomState,
}

impl Users {
    /// The users of the configuration.
    pub fn new(users: &[User]) -> Self {
        let by_name: HashMap<_, _> =
            users.iter().map(|user| full_name(&user.name)).zip(0..).collect();
        let tenants = by_name.keys().filter_map(|name| tenant_of(Some(name)).map(str::to_owned));
        let tenants = tenants.collect();
        Self { all: users.to_vec(), by_name, tenants, decoys: RandomState::new() }
    }

    /// Whether everybody may connect, with any password.
    pub fn allow_anybody(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any user belongs to the tenant of this name.
    pub fn are_in(&self, tenant: &str) -> bool {
        self.tenants.contains(tenant)
    }

    /// Verifies a login. Takes as long as the hash of the user says, and for a name that nobody has as long as
    /// for one of the users, always the same one: so the time does not tell whether a user exists, and a
    /// stranger costs no more than a user.
    pub fn verify(&self, name: &str, password: &[u8], client_id: &str) -> Verdict {
        let name = full_name(name);
        let user = self.by_name.get(&name).map(|index| &self.all[*index]);
        let user = user.filter(|_| password.len() <= PASSWORD_MAX);
        let Some(hash) = user.or_else(|| self.decoy(&name)).map(|user| &user.password) else {
            return Verdict::Denied;
        };
        let verified = password::verify(hash, &password[..password.len().min(PASSWORD_MAX)]);
        match user {
            Some(user) if verified => {
                Verdict::Allowed(Some(Arc::new(Permissions::new(user, client_id))))
            }
            _ => Verdict::Denied,
        }
    }

    fn decoy(&self, name: &str) -> Option<&User> {
        let count = NonZeroU64::new(self.all.len() as u64)?;
        let index = usize::try_from(self.decoys.hash_one(name) % count);
        self.all.get(index.expect("it is less than a length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(publish: &[&str], subscribe: &[&str]) -> User {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        User {
            name: "acme/ada".into(),
            password: password::hash("secret", password::Cost::Device),
            publish: owned(publish),
            subscribe: owned(subscribe),
            state: None,
        }
    }

    #[test]
    fn a_login_is_verified() {
        let users = Users::new(&[user(&["#"], &["#"])]);
        assert!(matches!(users.verify("acme/ada", b"secret", "c"), Verdict::Allowed(Some(_))));
        assert!(matches!(users.verify("acme/ada", b"wrong", "c"), Verdict::Denied));
        assert!(matches!(users.verify("acme/bob", b"secret", "c"), Verdict::Denied));
        let decoy = |name| users.decoy(name).map(|user| &*user.name);
        assert_eq!(decoy("acme/bob"), Some("acme/ada"), "it costs as much as a user");
        assert_eq!(decoy("acme/bob"), decoy("acme/bob"));
        assert!(matches!(Users::default().verify("a", b"b", "c"), Verdict::Denied));
    }

    #[test]
    fn rules_are_for_the_client() {
        let user = user(&["dev/%c/up", "all/%u/#"], &["dev/%c/#"]);
        let permissions = Permissions::new(&user, "c1");
        assert!(permissions.may_publish("dev/c1/up"));
        assert!(!permissions.may_publish("dev/c2/up"));
        assert!(permissions.may_publish("all/acme/ada/x"));
        assert!(permissions.may_subscribe("dev/c1/+"));
        assert!(!permissions.may_subscribe("dev/+/up"));
        for widened in ["", "+", "#", "c1/x", "$SYS"] {
            assert!(!Permissions::new(&user, widened).may_publish("dev/c1/up"), "{widened}");
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
