use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use barid_engine::access::TenantRules;
use barid_engine::clock::TimeSource;
use barid_engine::random::Random;
use barid_engine::rights::Rights;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::*;
use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::for_tests::credentials;
use crate::password::{self, Cost};
use crate::passwords::Passwords;
use crate::{ConfiguredUsers, Record};

const MOMENT: Duration = Duration::from_millis(300);

const GRACE: Duration = Duration::from_millis(100);

/// A back end that answers what a test wants.
struct Fake {
    name: &'static str,
    answer: Mutex<Answer>,
    renewal: Mutex<Renewal>,
    /// Done before each answer to a login.
    first: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Backend for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn decide<'a>(&'a self, _: &'a Credentials) -> crate::Answering<'a, Answer> {
        if let Some(first) = &*self.first.lock() {
            first();
        }
        Box::pin(std::future::ready(self.answer.lock().clone()))
    }

    fn renew<'a>(&'a self, _: &'a str, _: u64) -> crate::Answering<'a, Renewal> {
        Box::pin(std::future::ready(self.renewal.lock().clone()))
    }

    fn may_be_remembered(&self) -> bool {
        true
    }
}

/// The chains of tenants, by name; those of others are the common one.
#[derive(Debug, Default)]
struct Fixed {
    common: Vec<Arc<dyn Backend>>,
    own: HashMap<&'static str, Vec<Arc<dyn Backend>>>,
}

impl Chains for Fixed {
    fn of(&self, tenant: &str) -> Result<Chain, Unavailable> {
        let backends = self.own.get(tenant).unwrap_or(&self.common).clone().into();
        Ok(Chain { backends, rules: Arc::new(TenantRules::new(&[])) })
    }

    fn common(&self) -> Result<Arc<[Arc<dyn Backend>]>, Unavailable> {
        Ok(self.common.clone().into())
    }
}

fn fake(name: &'static str, answer: Answer) -> Arc<Fake> {
    let renewal = Mutex::new(Renewal::LogInAgain);
    Arc::new(Fake { name, answer: Mutex::new(answer), renewal, first: Mutex::default() })
}

fn lets_in(name: &'static str, user: &str) -> Arc<Fake> {
    let accepted = Accepted { user: user.into(), ..Accepted::default() };
    fake(name, Answer::Accepted(Box::new(accepted)))
}

fn authenticator(chains: Fixed) -> Arc<Authenticator> {
    let settings = Settings {
        hash_threads: 1,
        remembered: 100,
        fresh: Duration::from_secs(600),
        grace: GRACE,
    };
    let source = TimeSource { ticks: Instant::now, unix: || Duration::from_secs(1_000_000) };
    let clock = Clock::start(source);
    let authenticator =
        Authenticator::start(settings, [7; 32], clock, Random(|bytes| bytes.fill(7))).unwrap();
    authenticator.set_chains(Arc::new(chains));
    Arc::new(authenticator)
}

fn log_in(authenticator: &Authenticator, user: Option<&str>, password: &str) -> Outcome {
    let (sender, receiver) = channel();
    let begun = authenticator.begin(credentials(user, password), move |outcome| {
        sender.send(outcome).unwrap();
    });
    begun.unwrap_or_else(|_pending| receiver.recv_timeout(Duration::from_secs(10)).unwrap())
}

fn accepted(outcome: Outcome) -> (Arc<Principal>, Version) {
    match outcome {
        Outcome::Accepted(principal, version) => (principal, version),
        other => panic!("{other:?}"),
    }
}

fn denial(outcome: Outcome) -> Box<str> {
    match outcome {
        Outcome::Denied(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_without_a_user_name_has_the_version_of_the_user_that_it_is() {
    let devices = lets_in("devices", "acme/ada");
    let common: Vec<Arc<dyn Backend>> = vec![devices];
    let auth = authenticator(Fixed { common, ..Fixed::default() });
    auth.changed(&Scope::Tenant("acme".into()));
    let (principal, version) = accepted(log_in(&auth, None, ""));
    assert_eq!(&*principal.user, "acme/ada");
    assert_eq!(auth.changed_since(version, "acme/ada"), None);
    let other = Scope::User("acme/bob".into());
    auth.changed(&other);
    assert_eq!(auth.changed_since(version, "acme/ada"), None);
    auth.changed(&Scope::Everybody);
    assert_eq!(auth.changed_since(version, "acme/ada"), Some(false));
}

#[test]
fn a_user_that_changes_during_its_login_is_decided_on_again() {
    let devices = lets_in("devices", "acme/ada");
    let auth = authenticator(Fixed { common: vec![devices.clone()], ..Fixed::default() });
    let scopes = [Scope::Tenant("acme".into()), Scope::Everybody, Scope::User("acme/ada".into())];
    for scope in scopes {
        let (weak, asked) = (Arc::downgrade(&auth), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&asked);
        *devices.first.lock() = Some(Box::new(move || {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                weak.upgrade().unwrap().changed(&scope);
            }
        }));
        let (principal, version) = accepted(log_in(&auth, None, ""));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(auth.changed_since(version, &principal.user), None);
    }
    let weak = Arc::downgrade(&auth);
    let change = move || weak.upgrade().unwrap().changed(&Scope::Everybody);
    *devices.first.lock() = Some(Box::new(change));
    assert!(matches!(log_in(&auth, None, ""), Outcome::Unavailable(_)));
}

#[test]
fn a_back_end_lets_clients_only_into_tenants_that_have_it() {
    let tenants = |own: [(&'static str, Vec<Arc<dyn Backend>>); 2], common: Arc<Fake>| {
        authenticator(Fixed { common: vec![common], own: own.into() })
    };
    let unknown = || fake("common", Answer::Unknown);
    let of_default = || -> Arc<dyn Backend> { lets_in("of default", "acme/ada") };
    let mysql = || -> Arc<dyn Backend> { fake("mysql", Answer::Unknown) };
    let auth = tenants([("default", vec![of_default()]), ("other", vec![mysql()])], unknown());
    for user in [None, Some("ada")] {
        let reason = denial(log_in(&auth, user, ""));
        assert!(reason.contains("does not have this back end"), "{user:?}: {reason}");
    }
    // A tenant with back ends of its own does not have the common ones.
    let common = || lets_in("common", "acme/ada");
    let auth = tenants([("default", vec![mysql()]), ("acme", vec![mysql()])], common());
    denial(log_in(&auth, None, ""));
    let auth = tenants([("default", vec![mysql()]), ("acme", vec![mysql(), common()])], common());
    assert_eq!(&*accepted(log_in(&auth, None, "")).0.user, "acme/ada");
    // A back end that ignores the user name may find that of another tenant.
    assert_eq!(&*accepted(log_in(&auth, Some("third/x"), "")).0.user, "acme/ada");
}

#[test]
fn a_back_end_names_a_user_of_a_tenant() {
    for user in ["ada", "", "a b/ada", "/ada"] {
        let auth = authenticator(Fixed { common: vec![lets_in("a", user)], ..Fixed::default() });
        assert_eq!(&*denial(log_in(&auth, None, "")), "a: the user has no valid tenant", "{user}");
    }
}

#[test]
fn a_client_without_a_user_name_belongs_to_the_tenant_default_if_nobody_knows_it() {
    let common = || -> Vec<Arc<dyn Backend>> { vec![fake("common", Answer::Unknown)] };
    let auth = authenticator(Fixed { common: common(), ..Fixed::default() });
    denial(log_in(&auth, None, ""));
    assert!(!auth.asks_nobody_about(None));
    let own = [("default", Vec::new())].into();
    let auth = authenticator(Fixed { common: common(), own });
    assert!(matches!(log_in(&auth, None, ""), Outcome::Anybody));
    let wrong = fake("common", Answer::Refused("the token has expired"));
    let own = [("default", Vec::new())].into();
    let auth = authenticator(Fixed { common: vec![wrong], own });
    denial(log_in(&auth, None, ""));
    let own: Vec<Arc<dyn Backend>> = vec![lets_in("own", "default/ada")];
    let auth = authenticator(Fixed { common: common(), own: [("default", own)].into() });
    assert_eq!(&*accepted(log_in(&auth, None, "")).0.user, "default/ada");
    let auth = authenticator(Fixed::default());
    assert!(auth.asks_nobody_about(None) && auth.asks_nobody_about(Some("acme/ada")));
    assert!(matches!(log_in(&auth, None, ""), Outcome::Anybody));
}

#[test]
fn a_login_is_not_remembered_over_a_change() {
    let users = lets_in("users", "acme/ada");
    let auth = authenticator(Fixed { common: vec![users], ..Fixed::default() });
    let is_remembered = || auth.begin(credentials(Some("acme/ada"), "a"), |_| {}).is_ok();
    for scope in [Scope::Tenant("acme".into()), Scope::Everybody, Scope::User("acme/ada".into())] {
        accepted(log_in(&auth, Some("acme/ada"), "a"));
        assert!(is_remembered());
        auth.changed(&Scope::Tenant("other".into()));
        auth.changed(&Scope::User("acme/bob".into()));
        assert!(is_remembered());
        auth.changed(&scope);
        assert!(!is_remembered(), "{scope:?}");
    }
}

#[test]
fn who_is_busy_has_no_grace() {
    let users = lets_in("users", "acme/ada");
    let auth = authenticator(Fixed { common: vec![users.clone()], ..Fixed::default() });
    accepted(log_in(&auth, Some("acme/ada"), "a"));
    *users.answer.lock() = Answer::Busy;
    assert!(auth.shared.remembered.len() <= 1);
    let shown = credentials(Some("acme/ada"), "a");
    let decided = auth.runtime.block_on(auth.shared.decide(&shown));
    assert!(matches!(decided, Outcome::Busy), "{decided:?}");
    *users.answer.lock() = Answer::Unavailable(Unavailable("gone".into()));
    let decided = auth.runtime.block_on(auth.shared.decide(&shown));
    assert!(matches!(decided, Outcome::Accepted(..)), "{decided:?}");
}

#[test]
fn the_first_back_end_that_has_the_user_decides_under_whatever_name_it_logs_in() {
    let store = fake("store", Answer::Unknown);
    let certificates = lets_in("certificates", "acme/ada");
    let common: Vec<Arc<dyn Backend>> = vec![store.clone(), certificates];
    let auth = authenticator(Fixed { common, ..Fixed::default() });
    let names = [None, Some("acme/anything"), Some("other/ada")];
    *store.renewal.lock() = Renewal::Unknown;
    for name in names {
        accepted(log_in(&auth, name, ""));
    }
    auth.changed(&Scope::Everybody);
    for renewal in
        [Renewal::Gone("disabled"), Renewal::Stays(Rights::default()), Renewal::OtherPassword]
    {
        *store.renewal.lock() = renewal;
        for name in names {
            let reason = denial(log_in(&auth, name, ""));
            assert!(reason.contains("has the user, and decides"), "{name:?}: {reason}");
        }
    }
    *store.renewal.lock() = Renewal::Unavailable(Unavailable("gone".into()));
    assert!(matches!(log_in(&auth, None, ""), Outcome::Unavailable(_)));
}

#[test]
fn a_client_has_turns_of_its_tenant_where_somebody_has_logged_in() {
    let users = lets_in("users", "acme/ada");
    let auth = authenticator(Fixed { common: vec![users], ..Fixed::default() });
    let own = credentials(Some("acme/ada"), "a");
    assert!(!auth.shared.knows(&own));
    accepted(log_in(&auth, Some("acme/ada"), "a"));
    assert!(auth.shared.knows(&own));
    let elsewhere = Credentials { address: [192, 0, 2, 8].into(), ..own };
    assert!(!auth.shared.knows(&elsewhere));
    assert!(!auth.shared.knows(&credentials(Some("other/ada"), "a")));
}

#[test]
fn a_wrong_password_does_not_end_the_grace_of_the_right_one() {
    let record = Record {
        password: password::hash("right", Cost::Device),
        rights: Rights::default(),
        disabled: false,
        fast: None,
    };
    let hashing = Hashing::new(1);
    let users = ConfiguredUsers::new([("acme/ada".to_owned(), record)], &[7; 32]);
    let users = Arc::new(Passwords::new(users, hashing));
    let auth = authenticator(Fixed { common: vec![users], ..Fixed::default() });
    accepted(log_in(&auth, Some("acme/ada"), "right"));
    denial(log_in(&auth, Some("acme/ada"), "wrong"));
    let begun = auth.begin(credentials(Some("acme/ada"), "right"), |_| {});
    assert!(begun.is_ok(), "it is remembered");
}

#[test]
fn a_connected_client_stays_while_its_back_end_cannot_tell() {
    let users = lets_in("users", "acme/ada");
    let auth = authenticator(Fixed { common: vec![users.clone()], ..Fixed::default() });
    let (principal, _) = accepted(log_in(&auth, Some("acme/ada"), ""));
    *users.renewal.lock() = Renewal::Unavailable(Unavailable("gone".into()));
    let ask = |must_log_in| {
        let (sender, receiver) = channel();
        let reply = move |standing| _ = sender.send(standing);
        (auth.renew(Arc::clone(&principal), must_log_in, reply), receiver)
    };
    let (inquiry, others) = ask(false);
    let (_inquiry, own) = ask(true);
    let answer = own.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Standing::Gone { may_return: true, .. }), "{answer:?}");
    assert_eq!(others.recv_timeout(MOMENT).unwrap_err(), RecvTimeoutError::Timeout);
    // This very user changes now.
    inquiry.must_log_in();
    let answer = others.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Standing::Gone { may_return: true, .. }), "{answer:?}");
    let (inquiry, withdrawn) = ask(false);
    drop(inquiry);
    assert_eq!(
        withdrawn.recv_timeout(Duration::from_secs(10)).unwrap_err(),
        RecvTimeoutError::Disconnected
    );
    let (_inquiry, again) = ask(false);
    *users.renewal.lock() = Renewal::Stays(Rights::default());
    let answer = again.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Standing::Stays(_)), "{answer:?}");
}
