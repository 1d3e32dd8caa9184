//! The service that decides who may connect.

mod login;
mod standing;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::access::Policy;
use barid_engine::clock::Clock;
use barid_engine::names::{DEFAULT_TENANT, tenant_of};
use barid_engine::random::Random;
use barid_engine::rights::Rights;
use moka::sync::Cache;
use parking_lot::RwLock;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;

use crate::asker::Asker;
use crate::chain::{Chain, Chains};
use crate::counts::Counts;
use crate::credentials::Credentials;
use crate::directory::Unavailable;
use crate::enhanced::Step;
use crate::hashing::Hashing;
use crate::principal::{Outcome, Principal};
use crate::remembered::Remembered;
use crate::scope::Scope;
use crate::store;
use crate::turns::network_of;
use crate::versions::{Version, Versions};

pub use standing::{Inquiry, Standing};

/// Number of connected clients of a tenant that are looked up at a time.
const RENEWALS_MAX: usize = 32;

/// Maximum number of tenants whose chains are known, and of those whose clients are being looked up.
const TENANTS_MAX: u64 = 100_000;

/// Maximum number of addresses from which clients of a tenant are known to have logged in. Beyond it, the least recently
/// used ones share their turns with strangers.
const KNOWN_MAX: u64 = 200_000;

/// Time after which nothing is known any more about the look-ups of a tenant.
const RENEWALS_IDLE: Duration = Duration::from_secs(60);

/// How often a login is decided again because its user has changed meanwhile. Then the client may try again.
const ATTEMPTS: usize = 3;

/// Settings of the authenticator.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of threads that verify password hashes.
    pub hash_threads: usize,
    /// Maximum number of logins that are remembered.
    pub remembered: u64,
    /// Time for which an accepted login is accepted again without asking a back end.
    pub fresh: Duration,
    /// Time after [`fresh`](Self::fresh) for which it is still accepted if the back end cannot tell.
    pub grace: Duration,
}

/// The service that decides who may connect. It has a thread of its own, `barid-auth`, on which all back ends
/// wait for their databases and services, and threads `barid-login`, which verify password hashes.
#[derive(Debug)]
pub struct Authenticator {
    shared: Arc<Shared>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    source: RwLock<Option<Arc<dyn Chains>>>,
    /// Chains that were used a short while ago, by tenant.
    chains: Cache<Box<str>, Result<Chain, Unavailable>>,
    remembered: Remembered,
    hashing: Hashing,
    versions: Versions,
    /// What bounds the look-ups of connected clients, by tenant.
    renewing: Cache<Box<str>, Arc<Semaphore>>,
    clock: Clock,
    grace: Duration,
    random: Random,
    /// Makes the answers about names without a user.
    secret: [u8; 32],
    counts: Arc<Counts>,
    /// Tenants, each with a network from which a user has logged in.
    known: Cache<(Box<str>, IpAddr), ()>,
}

/// A login that is being decided. It is given up when this is dropped.
#[derive(Debug)]
pub struct Pending(AbortHandle);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Authenticator {
    /// Starts the service. `secret` must be the same after a restart: otherwise the messages of SCRAM show which
    /// users exist. Any client may connect until it has [chains](Self::set_chains).
    ///
    /// # Errors
    /// Fails if the operating system has no more threads or file descriptors.
    pub fn start(
        settings: Settings,
        secret: [u8; 32],
        clock: Clock,
        random: Random,
    ) -> io::Result<Self> {
        let Settings { hash_threads, remembered, fresh, grace } = settings;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(hash_threads)
            .thread_name("barid-login")
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("barid-auth".into()).spawn(move || {
            // An error means that the sender is gone, which is also the end.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        let shared = Arc::new(Shared {
            source: RwLock::default(),
            chains: Cache::new(TENANTS_MAX),
            remembered: Remembered::new(&random.bytes(), remembered, fresh, grace),
            hashing: Hashing::new(hash_threads),
            versions: Versions::default(),
            renewing: Cache::builder()
                .max_capacity(TENANTS_MAX)
                .time_to_idle(RENEWALS_IDLE)
                .build(),
            clock,
            grace,
            random,
            secret,
            counts: Arc::default(),
            known: Cache::new(KNOWN_MAX),
        });
        Ok(Self { shared, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the secret that is the same after a restart, for back ends: what they answer about names without
    /// a user depends on it.
    pub fn secret(&self) -> &[u8; 32] {
        &self.shared.secret
    }

    /// Returns the threads that verify password hashes, for back ends.
    pub fn hashing(&self) -> Hashing {
        self.shared.hashing.clone()
    }

    /// Returns the runtime, on which back ends run what they do in the background.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the counts of logins.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Returns the number of logins that are remembered, about.
    pub fn remembered(&self) -> u64 {
        self.shared.remembered.len()
    }

    /// Replaces the source of chains. [`changed`](Self::changed) must follow for the users that this concerns.
    pub fn set_chains(&self, chains: Arc<dyn Chains>) {
        *self.shared.source.write() = Some(chains);
        // Chains that are being computed from the previous source must not be kept.
        self.shared.versions.everybody_changed();
        self.shared.chains.invalidate_all();
    }

    /// Returns the names of the back ends that decide on the users of a tenant, in the order in which they are asked.
    /// Empty: any client may connect.
    ///
    /// # Errors
    /// The settings of the tenant cannot be read, or name a back end that does not exist: nobody can log in.
    pub fn back_ends(&self, tenant: &str) -> Result<Vec<String>, Unavailable> {
        let chain = self.shared.chain_of(tenant)?;
        Ok(chain.backends.iter().map(|backend| backend.name().to_owned()).collect())
    }

    /// Returns the name of the back end that decides on a user although the broker's own store may have the user, because it
    /// is asked first and has a record of the user. `None`: there is none, or it does not tell.
    pub async fn in_front_of_store(&self, user: &str) -> Option<String> {
        let chain = self.shared.chain_of(tenant_of(Some(user))?).ok()?;
        let store = chain.backends.iter().position(|backend| backend.name() == store::NAME)?;
        for backend in &chain.backends[..store] {
            if let Ok(Some(_)) = backend.record(user, Asker::BROKER).await {
                return Some(backend.name().to_owned());
            }
        }
        None
    }

    /// Whether any client may connect to a tenant.
    pub fn allows_anybody(&self, tenant: &str) -> bool {
        self.shared.chain_of(tenant).is_ok_and(|chain| chain.backends.is_empty())
    }

    /// Returns the policy of clients without a user in a tenant to which any client may connect; `None`: everything is
    /// allowed.
    pub fn policy_for_anybody(&self, tenant: &str) -> Option<Arc<Policy>> {
        let rules = self.shared.chain_of(tenant).ok()?.rules;
        (!rules.are_none()).then(|| Arc::new(Policy::new(&Rights::default(), rules)))
    }

    /// Whether no back end is asked about a client with this user name.
    pub fn asks_nobody_about(&self, user: Option<&str>) -> bool {
        tenant_of(user).is_some_and(|tenant| match user {
            Some(_) => self.allows_anybody(tenant),
            None => self.shared.nameless().is_ok_and(|chain| chain.backends.is_empty()),
        })
    }

    /// Begins to decide on a login. The outcome is returned at once if no back end needs to be asked; otherwise
    /// `reply` is called with it on another thread, unless the returned [`Pending`] has been dropped.
    pub fn begin(
        &self,
        mut credentials: Credentials,
        reply: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Outcome, Pending> {
        if let Some(outcome) = self.shared.decide_at_once(&credentials) {
            return Ok(outcome);
        }
        credentials.is_known = self.shared.knows(&credentials);
        let shared = Arc::clone(&self.shared);
        let task = self.runtime.spawn(async move { reply(shared.decide(&credentials).await) });
        Err(Pending(task.abort_handle()))
    }

    /// Begins an exchange of [`Method::Scram`](crate::Method::Scram) with the first message of a client. `reply` is called with what
    /// follows on another thread, unless the returned [`Pending`] has been dropped.
    pub fn begin_exchange(
        &self,
        credentials: Credentials,
        message: Box<[u8]>,
        reply: impl FnOnce(Step) + Send + 'static,
    ) -> Pending {
        let shared = Arc::clone(&self.shared);
        let task = self.runtime.spawn(async move {
            reply(shared.challenge(credentials, &message).await);
        });
        Pending(task.abort_handle())
    }

    /// Returns the time at which the connection of a client must end.
    pub fn expiry(&self, principal: &Principal) -> Option<MonoTime> {
        principal.expires.map(|expires| self.shared.clock.when(expires))
    }

    /// Returns whether a user has changed since the version of its login; `None`: it has not. `Some(true)`: the
    /// user itself has changed; `Some(false)`: only its tenant has, or everybody.
    pub fn changed_since(&self, version: Version, user: &str) -> Option<bool> {
        self.shared.versions.changed_since(version, user)
    }

    /// Notes that users have changed: their logins are not remembered any more, and logins that are being
    /// decided find out by [`changed_since`](Self::changed_since). The caller then lets connected users be
    /// [looked up again](Self::renew).
    pub fn changed(&self, scope: &Scope) {
        let Shared { versions, chains, remembered, .. } = &*self.shared;
        match scope {
            Scope::User(user) => {
                versions.user_changed(user);
                remembered.forget(user);
            }
            Scope::Tenant(tenant) => {
                versions.tenant_changed(tenant);
                chains.invalidate(&**tenant);
                // A login between these two lines has the old chain and the new version.
                versions.tenant_changed(tenant);
            }
            Scope::Everybody => {
                versions.everybody_changed();
                chains.invalidate_all();
                versions.everybody_changed();
                remembered.forget_all();
            }
        }
    }

    /// Looks up again whether a connected client may stay. `must_log_in`: a user that cannot be looked up
    /// without its credentials has to go. `reply` is called with the answer on another thread, once a back end can
    /// tell.
    pub fn renew(
        &self,
        principal: Arc<Principal>,
        must_log_in: bool,
        reply: impl FnOnce(Standing) + Send + 'static,
    ) -> Inquiry {
        let shared = Arc::clone(&self.shared);
        let must_log_in = Arc::new(AtomicBool::new(must_log_in));
        let asked = Arc::clone(&must_log_in);
        let task = self.runtime.spawn(async move { reply(shared.renew(&principal, &asked).await) });
        Inquiry::new(task.abort_handle(), must_log_in)
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Whether a client of the same tenant has logged in from the same network before.
    fn knows(&self, credentials: &Credentials) -> bool {
        let network = network_of(credentials.address);
        credentials
            .tenant()
            .is_some_and(|tenant| self.known.contains_key(&(tenant.into(), network)))
    }

    /// Returns the chain of a tenant. Before there is a source of chains, nobody is let in.
    fn chain_of(&self, tenant: &str) -> Result<Chain, Unavailable> {
        if let Some(chain) = self.chains.get(tenant) {
            return chain;
        }
        let version = self.versions.of_tenant(tenant);
        let chain = self.source()?.of(tenant);
        // A chain that has changed meanwhile must not be kept.
        if self.versions.of_tenant(tenant) == version {
            self.chains.insert(tenant.into(), chain.clone());
            if self.versions.of_tenant(tenant) != version {
                self.chains.invalidate(tenant);
            }
        }
        chain
    }

    /// Returns the chain for clients that have given no user name: the common one, and behind it what the tenant
    /// `default` has of its own. Which tenant a client is in is known afterwards.
    fn nameless(&self) -> Result<Chain, Unavailable> {
        let Chain { backends: own, rules } = self.chain_of(DEFAULT_TENANT)?;
        let common = self.source()?.common()?;
        let is_common = |name: &str| common.iter().any(|backend| backend.name() == name);
        let further = own.iter().filter(|backend| !is_common(backend.name()));
        Ok(Chain { backends: common.iter().chain(further).cloned().collect(), rules })
    }

    fn source(&self) -> Result<Arc<dyn Chains>, Unavailable> {
        let source = self.source.read().clone();
        source.ok_or_else(|| Unavailable("the broker is starting".into()))
    }
}
