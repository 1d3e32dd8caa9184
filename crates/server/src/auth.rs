//! Who may connect, and what they may publish and subscribe to.
//!
//! Verifying a password takes milliseconds on purpose, so no IO thread does it: a [`Verifier`] has
//! threads of its own, and posts the verdict.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use hashbrown::{HashMap, HashSet};
use mqtt_proto::topic;
use parking_lot::Mutex;
use statestore_proto::{Verb, topics};

use crate::event_loop::{ConnectionId, Mailbox, Post};
use crate::settings::User;
use crate::state_store::KeyRules;
use crate::tenant::{DEFAULT_TENANT, tenant_of};

/// Logins that may wait for each thread that verifies. Beyond, clients are told that the server is busy,
/// rather than to wait for longer than they are given.
const WAITING_PER_THREAD: usize = 256;

/// Bytes of the longest password that is verified.
const PASSWORD_MAX: usize = 4 * 1024;

/// Whether a client may connect, and what it may do.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may; without permissions, everything in its tenant.
    Allowed(Option<Arc<Permissions>>),
    /// User name or password are wrong.
    Denied,
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

/// Topic levels below which only the broker publishes.
const RESERVED: [&str; 2] = ["$SYS", "$share"];

/// Whether a client may publish to a topic, or have its will published there. Without permissions it may
/// publish everything but what is the broker's own.
pub fn may_publish(permissions: Option<&Permissions>, topic: &str) -> bool {
    !is_reserved(topic) && permissions.is_none_or(|permissions| permissions.may_publish(topic))
}

/// Whether only the broker publishes to a topic.
pub fn is_reserved(topic: &str) -> bool {
    let first = topic.split('/').next().unwrap_or_default();
    RESERVED.contains(&first) || topic.starts_with(topics::RESERVED)
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
    by_name: HashMap<String, User>,
    tenants: HashSet<String>,
}

impl Users {
    /// The users of the configuration.
    pub fn new(users: &[User]) -> Self {
        let by_name: HashMap<_, _> =
            users.iter().map(|user| (full_name(&user.name), user.clone())).collect();
        let tenants = by_name.keys().filter_map(|name| tenant_of(Some(name)).map(str::to_owned));
        Self { tenants: tenants.collect(), by_name }
    }

    /// Whether everybody may connect, with any password.
    pub fn allow_anybody(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether any user belongs to the tenant of this name.
    pub fn are_in(&self, tenant: &str) -> bool {
        self.tenants.contains(tenant)
    }

    /// Verifies a login. Takes milliseconds, also for a user that does not exist.
    fn verify(&self, name: &str, password: &[u8], client_id: &str) -> Verdict {
        let user = self.by_name.get(&full_name(name)).filter(|_| password.len() <= PASSWORD_MAX);
        let password = &password[..password.len().min(PASSWORD_MAX)];
        let hash = user.map_or(NOBODYS_PASSWORD, |user| &user.password);
        let verified = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        match user {
            Some(user) if verified => {
                Verdict::Allowed(Some(Arc::new(Permissions::new(user, client_id))))
            }
            _ => Verdict::Denied,
        }
    }
}

/// `{tenant}/{client}`, also for a user name that leaves the tenant `default` out.
pub fn full_name(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{DEFAULT_TENANT}/{name}") }
}

/// What the password of a user that does not exist is compared with, so that it takes as long.
const NOBODYS_PASSWORD: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5$\
     0000000000000000000000000000000000000000000";

/// The hash of a password, as it stands in the configuration (argon2id, PHC string format).
pub fn hash_password(password: &str) -> String {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .expect("the default parameters are valid")
        .to_string()
}

/// A login to be verified.
pub struct Login {
    /// The users as they were when the client connected.
    pub users: Arc<Users>,
    /// The user name.
    pub name: String,
    /// The password.
    pub password: Vec<u8>,
    /// The client identifier.
    pub client_id: String,
    /// Gone when the client does not wait any more.
    pub waits: Weak<()>,
    /// Where the verdict goes.
    pub reply_to: (Mailbox, ConnectionId),
}

/// Threads that verify logins.
#[derive(Debug)]
pub struct Verifier(SyncSender<Login>);

impl Verifier {
    /// Starts `threads` threads. They end with the verifier.
    pub fn start(threads: usize) -> Self {
        let (sender, receiver) = sync_channel(WAITING_PER_THREAD * threads);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name("barid-login".into())
                .spawn(move || verify_all(&receiver))
                .expect("the operating system has room for a thread");
        }
        Self(sender)
    }

    /// Verifies a login some time soon. False: too many wait.
    pub fn submit(&self, login: Login) -> bool {
        !matches!(self.0.try_send(login), Err(TrySendError::Full(_)))
    }
}

fn verify_all(receiver: &Mutex<Receiver<Login>>) {
    loop {
        let Ok(login) = receiver.lock().recv() else { return };
        if login.waits.strong_count() == 0 {
            continue;
        }
        let verdict = login.users.verify(&login.name, &login.password, &login.client_id);
        let (mailbox, connection) = login.reply_to;
        mailbox.post(Post::Authenticated(connection, verdict));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(publish: &[&str], subscribe: &[&str]) -> User {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        User {
            name: "acme/ada".into(),
            password: hash_password("secret"),
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
        assert!(PasswordHash::new(NOBODYS_PASSWORD).is_ok(), "it must cost as much as a real one");
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
