//! The authenticator with the back ends of this broker: which back ends and rules a tenant has, and who is
//! told of changes.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use barid_auth::store::StoreUsers;
use barid_auth::stored::StoredTenant;
use barid_auth::{
    Authenticator, Backend, Chain, Chains, ConfiguredUsers, Outcome, Passwords, Record, Revocable,
    Scope, Standing, Step, Unavailable,
};
use barid_core::time::WallTime;
use barid_engine::access::TenantRules;
use barid_engine::clock::Clock;
use barid_engine::ids::ConnectionId;
use barid_engine::managed::{Managed, ManagedKind};
use barid_engine::names::{full_name, tenant_of};
use barid_engine::owner::Owner;
use barid_engine::random::Random;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use tracing::warn;

use crate::rate_limit::Seldom;
use crate::remotes::{Remotes, SharedCache, Tell};
use crate::settings::{Auth, Settings};
use crate::transport::Revocations;

/// The thread of a connection, as the authenticator sees it.
pub trait LoginOwner: Owner {
    /// Delivers the outcome of the login of a connection.
    fn authenticated(&self, connection: ConnectionId, outcome: Outcome);

    /// Delivers what follows the first message of an enhanced authentication.
    fn stepped(&self, connection: ConnectionId, step: Step);

    /// Answers the question with this number, whether the client of a connection may stay.
    fn renewed(&self, connection: ConnectionId, number: u32, standing: Standing);
}

/// A change after which connected clients are checked again.
#[derive(Clone, Debug)]
pub enum Change {
    /// Users have changed.
    Users(Scope),
    /// There is a new ban.
    Bans,
    /// These client certificates are revoked.
    Certificates(Arc<HashSet<Revocable>>),
}

/// Changes after which connected clients are checked, all of them together.
#[derive(Debug, Default)]
pub struct Changes {
    bans: bool,
    everybody: bool,
    tenants: HashSet<Box<str>>,
    users: HashSet<Box<str>>,
    certificates: Vec<Arc<HashSet<Revocable>>>,
}

/// Time before the end of a revocation list in which a warning is logged.
const REVOCATIONS_WARN: Duration = Duration::from_secs(24 * 60 * 60);

type Follower = Box<dyn Fn(&Change) + Send + Sync>;

/// The logins of a broker.
pub struct Logins {
    /// The service that decides.
    pub authenticator: Authenticator,
    managed: Arc<Managed>,
    store: Arc<dyn Backend>,
    followers: RwLock<Vec<Follower>>,
    /// Whether the first user in the store has been seen, after which the chains of all tenants are others.
    store_is_used: AtomicBool,
    undecided: Mutex<Seldom>,
    revoked: RwLock<Arc<HashSet<Revocable>>>,
    /// The time at which the first revocation list expires.
    revocations_expire: RwLock<Option<WallTime>>,
    /// The tenants of the users in the configuration file.
    tenants: RwLock<HashSet<Box<str>>>,
    remotes: Mutex<Remotes>,
    clock: Clock,
    this: Weak<Self>,
}

/// Where the chains of tenants come from.
#[derive(Debug)]
struct Source {
    settings: Arc<Settings>,
    managed: Arc<Managed>,
    file: Option<Arc<dyn Backend>>,
    store: Arc<dyn Backend>,
    /// The other back ends, by name.
    remote: HashMap<Box<str>, Arc<dyn Backend>>,
}

impl Changes {
    /// Adds a change.
    pub fn add(&mut self, change: Change) {
        match change {
            Change::Bans => self.bans = true,
            Change::Users(Scope::Everybody) => self.everybody = true,
            Change::Users(Scope::Tenant(tenant)) => _ = self.tenants.insert(tenant),
            Change::Users(Scope::User(user)) => _ = self.users.insert(user),
            Change::Certificates(revoked) => self.certificates.push(revoked),
        }
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        !(self.bans || self.everybody)
            && self.tenants.is_empty()
            && self.users.is_empty()
            && self.certificates.is_empty()
    }

    /// Whether there are new bans.
    pub fn are_of_bans(&self) -> bool {
        self.bans
    }

    /// Whether they revoke this certificate.
    pub fn revoke(&self, certificate: &Revocable) -> bool {
        self.certificates.iter().any(|revoked| revoked.contains(certificate))
    }

    /// Whether they concern a user, given by its full name. `Some(true)`: a user that cannot be looked up without
    /// its credentials has to log in again.
    pub fn concern(&self, user: &str) -> Option<bool> {
        let must_log_in = self.users.contains(user);
        let is_concerned =
            || tenant_of(Some(user)).is_some_and(|tenant| self.concern_all_of(tenant));
        (must_log_in || is_concerned()).then_some(must_log_in)
    }

    /// Whether they concern all clients of a tenant.
    pub fn concern_all_of(&self, tenant: &str) -> bool {
        self.everybody || self.tenants.contains(tenant)
    }
}

impl Logins {
    /// Starts the authenticator. `secret` is the same after a restart.
    ///
    /// # Errors
    /// Fails if the operating system has no more threads or file descriptors.
    pub fn start(
        settings: &Arc<Settings>,
        managed: &Arc<Managed>,
        secret: [u8; 32],
        clock: Clock,
        random: Random,
    ) -> io::Result<Arc<Self>> {
        let authenticator =
            Authenticator::start(settings_of(&settings.auth), secret, clock, random)?;
        let users = StoreUsers::new(Arc::clone(managed), &secret);
        let store = Arc::new(Passwords::new(users, authenticator.hashing()));
        let logins = Arc::new_cyclic(|this| Self {
            authenticator,
            managed: Arc::clone(managed),
            store,
            followers: RwLock::default(),
            store_is_used: AtomicBool::new(false),
            undecided: Mutex::default(),
            revoked: RwLock::default(),
            revocations_expire: RwLock::default(),
            tenants: RwLock::default(),
            remotes: Mutex::default(),
            clock,
            this: this.clone(),
        });
        logins.configure(settings);
        let following = Arc::downgrade(&logins);
        managed.on_change(move |kind, name| {
            if let Some(logins) = following.upgrade() {
                logins.managed_changed(kind, name);
            }
        });
        Ok(logins)
    }

    /// Applies the users, chains and rules of a configuration. Connected clients are not checked again. Returns whether
    /// a back end was replaced.
    fn configure(&self, settings: &Arc<Settings>) -> bool {
        let tenants = settings.users.iter().filter_map(|user| tenant_of(Some(&user.name)));
        *self.tenants.write() = tenants.map(Into::into).collect();
        let users = settings.users.iter().map(|user| {
            let password = user.password.clone();
            (
                user.name.clone(),
                Record { password, rights: user.rights(), disabled: false, fast: None },
            )
        });
        let users = ConfiguredUsers::new(users, self.authenticator.secret());
        let file = (!users.are_none()).then(|| {
            let users = Passwords::new(users, self.authenticator.hashing());
            Arc::new(users) as Arc<dyn Backend>
        });
        let mut remotes = self.remotes.lock();
        let this = self.this.clone();
        let tell: Tell = Arc::new(move |scope| {
            if let Some(logins) = this.upgrade() {
                logins.changed(scope);
            }
        });
        let is_replaced = remotes.configure(&settings.auth, &self.authenticator, self.clock, &tell);
        let names = settings.auth.remote_names();
        let remote = names.filter_map(|name| Some((name.into(), remotes.get(name)?))).collect();
        drop(remotes);
        self.authenticator.set_chains(Arc::new(Source {
            remote,
            settings: Arc::clone(settings),
            managed: Arc::clone(&self.managed),
            file,
            store: Arc::clone(&self.store),
        }));
        is_replaced
    }

    /// Applies a new configuration, and has connected clients checked again. Returns whether a back end was replaced.
    pub fn reload(&self, old: &Settings, new: &Arc<Settings>) -> bool {
        let is_replaced = self.configure(new);
        let scopes = if is_replaced { vec![Scope::Everybody] } else { changed_scopes(old, new) };
        scopes.iter().for_each(|scope| self.changed(scope));
        is_replaced
    }

    /// Returns whether users of this tenant may exist.
    pub fn know_tenant(&self, settings: &Settings, tenant: &str) -> bool {
        settings.tenants.contains_key(tenant)
            || self.tenants.read().contains(tenant)
            || self.managed.get(ManagedKind::Tenant, tenant).is_some()
            || !self
                .managed
                .list(ManagedKind::User, &format!("{tenant}/"), None, 1)
                .objects
                .is_empty()
    }

    /// Logs that a login could not be decided, at most once in a few seconds, with the number of these since the last
    /// line.
    pub fn tell_undecided(&self, peer: SocketAddr, reason: &str) {
        if let Some(logins) = self.undecided.lock().happened(Instant::now()) {
            warn!(%peer, logins, "logins cannot be decided: {reason}");
        }
    }

    /// Has `follower` told of all changes from now on. It must return at once.
    pub fn follow(&self, follower: impl Fn(&Change) + Send + Sync + 'static) {
        self.followers.write().push(Box::new(follower));
    }

    /// Notes that users have changed, and has connected clients checked again.
    pub fn changed(&self, scope: &Scope) {
        self.authenticator.changed(scope);
        self.tell(&Change::Users(scope.clone()));
    }

    /// Notes that users have changed at a back end, and tells all brokers that share a cache of it.
    ///
    /// # Errors
    /// Some brokers could not be told: they may use what they have for a while.
    pub async fn changed_elsewhere(&self, scope: Scope) -> Result<(), Unavailable> {
        let mut told = Ok(());
        for (_, cache) in self.caches() {
            let scope = scope.clone();
            // The connection to Redis belongs to the runtime of logins.
            let telling = self
                .authenticator
                .runtime()
                .spawn(async move { cache.invalidate(&scope).await })
                .await;
            told = told.and(telling.unwrap_or(Ok(())));
        }
        self.changed(&scope);
        told
    }

    /// Returns the shared caches, with the names of their back ends.
    pub fn caches(&self) -> Vec<(String, SharedCache)> {
        self.remotes.lock().caches()
    }

    fn managed_changed(&self, kind: ManagedKind, name: &str) {
        match kind {
            ManagedKind::User if !self.store_is_used.swap(true, Ordering::SeqCst) => {
                self.changed(&Scope::Everybody);
            }
            ManagedKind::User => self.changed(&Scope::User(name.into())),
            ManagedKind::Tenant => self.changed(&Scope::Tenant(name.into())),
            ManagedKind::Ban => self.tell(&Change::Bans),
            ManagedKind::Token | ManagedKind::Slot => {}
        }
    }

    /// Notes that these client certificates are revoked, and no others. Warns of lists that expire soon.
    pub fn set_revocations(&self, Revocations { certificates, expire }: Revocations) {
        *self.revocations_expire.write() = expire;
        let left = expire.map(|at| at.as_millis().saturating_sub(self.clock.wall().as_millis()));
        match left.map(Duration::from_millis) {
            Some(Duration::ZERO) => warn!(
                "a certificate revocation list has expired: clients whose certificates it is about \
                 are refused until there is a newer one (tls.crl)"
            ),
            Some(left) if left < REVOCATIONS_WARN => warn!(
                minutes = left.as_secs() / 60,
                "a certificate revocation list expires soon: then clients whose certificates it is \
                 about are refused (tls.crl)"
            ),
            _ => {}
        }
        let certificates = Arc::new(certificates);
        *self.revoked.write() = Arc::clone(&certificates);
        if !certificates.is_empty() {
            self.tell(&Change::Certificates(certificates));
        }
    }

    /// Returns the time at which the first revocation list expires.
    pub fn revocations_expire(&self) -> Option<WallTime> {
        *self.revocations_expire.read()
    }

    /// Whether a client certificate is revoked. A client may have finished its TLS handshake before the revocation.
    pub fn is_revoked(&self, certificate: Option<Revocable>) -> bool {
        certificate.is_some_and(|certificate| self.revoked.read().contains(&certificate))
    }

    fn tell(&self, change: &Change) {
        for follower in &*self.followers.read() {
            follower(change);
        }
    }
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}

impl Chains for Source {
    fn of(&self, tenant: &str) -> Result<Chain, Unavailable> {
        let stored = StoredTenant::of(&self.managed, tenant)?;
        let configured = self.settings.tenants.get(tenant);
        let names = stored.as_ref().and_then(|stored| stored.auth.as_ref());
        let names = names.or_else(|| configured.and_then(|tenant| tenant.auth.as_ref()));
        let rules = match &stored {
            Some(stored) if !stored.rules.is_empty() => &stored.rules[..],
            _ => configured.map_or(&[][..], |tenant| &tenant.rules),
        };
        let backends = names.map_or_else(|| self.common(), |names| self.backends(names));
        Ok(Chain { backends: backends?, rules: Arc::new(TenantRules::new(rules)) })
    }

    fn common(&self) -> Result<Arc<[Arc<dyn Backend>]>, Unavailable> {
        match &self.settings.auth.chain {
            Some(names) => self.backends(names),
            None if self.file.is_none() && !self.managed.is_used(ManagedKind::User) => {
                Ok(Arc::default())
            }
            None => Ok(self.file.iter().chain([&self.store]).cloned().collect()),
        }
    }
}

impl Source {
    fn backends(&self, names: &[String]) -> Result<Arc<[Arc<dyn Backend>]>, Unavailable> {
        names.iter().map(|name| self.backend(name)).collect()
    }

    fn backend(&self, name: &str) -> Result<Arc<dyn Backend>, Unavailable> {
        let found = match name {
            ConfiguredUsers::NAME => self.file.clone(),
            barid_auth::store::NAME => Some(Arc::clone(&self.store)),
            _ => self.remote.get(name).cloned(),
        };
        found.ok_or_else(|| Unavailable(format!("there is no back end `{name}`")))
    }
}

/// The users that a new configuration changes.
fn changed_scopes(old: &Settings, new: &Settings) -> Vec<Scope> {
    if old.auth != new.auth || old.users.is_empty() != new.users.is_empty() {
        return vec![Scope::Everybody];
    }
    let mut scopes = Vec::new();
    for name in old.tenants.keys().chain(new.tenants.keys()) {
        let of = |settings: &Settings| {
            settings.tenants.get(name).map(|tenant| (tenant.auth.clone(), tenant.rules.clone()))
        };
        if of(old) != of(new) {
            scopes.push(Scope::Tenant((**name).into()));
        }
    }
    let by_name = |settings: &Settings| {
        let users = settings.users.iter().map(|user| (full_name(&user.name), user.clone()));
        users.collect::<HashMap<_, _>>()
    };
    let (before, after) = (by_name(old), by_name(new));
    for name in before.keys().chain(after.keys()) {
        if before.get(name) != after.get(name) {
            scopes.push(Scope::User((**name).into()));
        }
    }
    scopes
}

fn settings_of(auth: &Auth) -> barid_auth::Settings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    // With all cores, a flood of wrong passwords of one tenant would delay the clients of all others by time slices of
    // the operating system.
    let hash_threads = if auth.hash_threads == 0 { (cores / 2).max(1) } else { auth.hash_threads };
    barid_auth::Settings {
        hash_threads,
        remembered: auth.remembered,
        fresh: seconds(auth.fresh),
        grace: seconds(auth.grace),
    }
}
