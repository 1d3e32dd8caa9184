//! The service that decides who may connect.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::access::Policy;
use barid_engine::clock::Clock;
use barid_engine::names::tenant_of;
use barid_engine::random::Random;
use moka::sync::Cache;
use parking_lot::RwLock;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::chain::{Chain, Chains};
use crate::counts::{Counts, Verdict};
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::Unavailable;
use crate::enhanced::{Exchange, Step};
use crate::hashing::Hashing;
use crate::password;
use crate::principal::{Outcome, Principal, Version};
use crate::remembered::{Age, Remembered};
use crate::scram::{ClientFirst, Keys};

/// Threads for blocking work besides the verification of passwords: look-ups of host names.
const OTHER_BLOCKING_THREADS: usize = 4;

/// Number of counters of changes. Two tenants may share one, so it only bounds how often a user is looked up
/// again without need.
const VERSIONS: usize = 256;

/// Time after which a user is looked up again who could not be looked up.
const RENEWAL_PAUSE: Duration = Duration::from_secs(2);

/// Maximum number of tenants that are known to have users. Beyond it, the least recently used ones share their
/// turns with tenants that may not exist.
const TENANTS_MAX: u64 = 100_000;

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
    versions: Box<[AtomicU64]>,
    hasher: RandomState,
    clock: Clock,
    grace: Duration,
    random: Random,
    /// Makes the messages of SCRAM for names without a user.
    secret: [u8; 32],
    counts: Counts,
    /// Tenants with a user that has logged in.
    tenants: Cache<Box<str>, ()>,
}

/// A login that is being decided. It is given up when this is dropped.
#[derive(Debug)]
pub struct Pending(AbortHandle);

/// The users that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One user, by its full name. A user with a token has to log in again.
    User(Box<str>),
    /// All users of a tenant.
    Tenant(Box<str>),
    /// All users.
    Everybody,
}

/// Whether a connected client may stay.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It may stay, as this principal.
    Stays(Arc<Principal>),
    /// It has to go. The text is for the log.
    Gone {
        /// The reason.
        reason: &'static str,
        /// Whether the client may come back with other credentials. Otherwise an operator has removed or
        /// disabled the user.
        may_return: bool,
    },
}

impl Scope {
    /// Whether a user, given by its full name, is concerned.
    pub fn includes(&self, user: &str) -> bool {
        match self {
            Self::User(name) => **name == *user,
            Self::Tenant(name) => tenant_of(Some(user)) == Some(&**name),
            Self::Everybody => true,
        }
    }
}

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
            .max_blocking_threads(hash_threads + OTHER_BLOCKING_THREADS)
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
            versions: (0..VERSIONS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            clock,
            grace,
            random,
            secret,
            counts: Counts::default(),
            tenants: Cache::new(TENANTS_MAX),
        });
        Ok(Self { shared, runtime: handle, stop: Some(stop), thread: Some(thread) })
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
        for version in &self.shared.versions {
            version.fetch_add(1, Ordering::SeqCst);
        }
        self.shared.chains.invalidate_all();
    }

    /// Whether any client may connect to a tenant.
    pub fn allows_anybody(&self, tenant: &str) -> bool {
        self.shared.chain_of(tenant).is_ok_and(|chain| chain.backends.is_empty())
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
        let tenant = credentials.tenant();
        credentials.is_known_tenant =
            tenant.is_some_and(|tenant| self.shared.tenants.contains_key(tenant));
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
            let step = shared.challenge(&credentials, &message).await;
            reply(step.unwrap_or_else(Step::Ended));
        });
        Pending(task.abort_handle())
    }

    /// Returns the time at which the connection of a client must end.
    pub fn expiry(&self, principal: &Principal) -> Option<MonoTime> {
        principal.expires.map(|expires| self.shared.clock.when(expires))
    }

    /// Whether a user is still as it was in `version`.
    pub fn is_current(&self, user: &str, version: Version) -> bool {
        self.shared.version_of(user) == version
    }

    /// Notes that users have changed: their logins are not remembered any more, and logins that are being
    /// decided are not [current](Self::is_current). The caller then lets connected users be
    /// [looked up again](Self::renew).
    pub fn changed(&self, scope: &Scope) {
        let shared = &self.shared;
        match scope {
            Scope::User(user) => {
                shared.advance(user);
                shared.remembered.forget(user);
            }
            Scope::Tenant(tenant) => {
                shared.advance(&format!("{tenant}/"));
                shared.chains.invalidate(&**tenant);
                shared.remembered.forget_tenant(tenant);
            }
            Scope::Everybody => {
                for version in &shared.versions {
                    version.fetch_add(1, Ordering::SeqCst);
                }
                shared.chains.invalidate_all();
                shared.remembered.forget_all();
            }
        }
    }

    /// Looks up again whether a connected client may stay. `must_log_in`: a user that cannot be looked up
    /// without its credentials has to go.
    pub fn renew(
        &self,
        principal: Arc<Principal>,
        must_log_in: bool,
        reply: impl FnOnce(Standing) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move { reply(shared.renew(&principal, must_log_in).await) });
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
    /// Returns the chain of a tenant. Before there is a source of chains, nobody is let in.
    fn chain_of(&self, tenant: &str) -> Result<Chain, Unavailable> {
        if let Some(chain) = self.chains.get(tenant) {
            return chain;
        }
        let user = format!("{tenant}/");
        let version = self.version_of(&user);
        let source = self.source.read().clone();
        let source = source.ok_or_else(|| Unavailable("the broker is starting".into()))?;
        let chain = source.of(tenant);
        // A chain that has changed meanwhile must not be kept.
        if self.version_of(&user) == version {
            self.chains.insert(tenant.into(), chain.clone());
            if self.version_of(&user) != version {
                self.chains.invalidate(tenant);
            }
        }
        chain
    }

    fn version(&self, user: &str) -> &AtomicU64 {
        let tenant = tenant_of(Some(user)).unwrap_or_default();
        let hash = usize::try_from(self.hasher.hash_one(tenant) % VERSIONS as u64);
        &self.versions[hash.expect("it is less than a small number")]
    }

    fn version_of(&self, user: &str) -> Version {
        Version(self.version(user).load(Ordering::SeqCst))
    }

    fn advance(&self, user: &str) {
        self.version(user).fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> MonoTime {
        self.clock.now()
    }

    /// Decides without a back end, if possible. Takes microseconds.
    fn decide_at_once(&self, credentials: &Credentials) -> Option<Outcome> {
        let Some(tenant) = credentials.tenant() else {
            return Some(Outcome::Denied("the part before the slash cannot be a tenant".into()));
        };
        let user = credentials.user.as_deref().unwrap_or_default();
        let version = self.version_of(user);
        let known = self.remembered.find(credentials, Age::Fresh, self.now(), self.clock.wall());
        if let Some(principal) = known {
            self.counts.add(&principal.backend, Verdict::Remembered);
            return Some(Outcome::Accepted(principal, version));
        }
        match self.chain_of(tenant) {
            Err(error) => Some(Outcome::Unavailable(error.to_string().into())),
            Ok(chain) if chain.backends.is_empty() => Some(Outcome::Anybody),
            Ok(_) => None,
        }
    }

    async fn decide(&self, credentials: &Credentials) -> Outcome {
        let Some(tenant) = credentials.tenant() else {
            return Outcome::Denied("the part before the slash cannot be a tenant".into());
        };
        let user = credentials.user.as_deref().unwrap_or_default();
        let version = self.version_of(user);
        let chain = match self.chain_of(tenant) {
            Ok(chain) => chain,
            Err(error) => return Outcome::Unavailable(error.to_string().into()),
        };
        for backend in chain.backends.iter() {
            let answer = backend.decide(credentials).await;
            self.counts.add(backend.name(), Verdict::of(&answer));
            match answer {
                Answer::Unknown => {}
                Answer::Accepted(accepted) => {
                    let backend = &**backend;
                    let remembered = backend.may_be_remembered();
                    return self.accept(
                        credentials,
                        &chain,
                        backend,
                        *accepted,
                        version,
                        remembered,
                    );
                }
                Answer::Refused(reason) => {
                    self.remembered.forget(user);
                    return Outcome::Denied(format!("{}: {reason}", backend.name()).into());
                }
                Answer::Unavailable(error) => {
                    let known = self.remembered.find(
                        credentials,
                        Age::InGrace,
                        self.now(),
                        self.clock.wall(),
                    );
                    let Some(principal) = known else {
                        return Outcome::Unavailable(error.to_string().into());
                    };
                    self.counts.add(backend.name(), Verdict::InGrace);
                    return Outcome::Accepted(principal, version);
                }
                Answer::Busy => return Outcome::Busy,
            }
        }
        self.remembered.forget(user);
        self.take_as_long_as_for_a_user(credentials, &chain).await
    }

    fn accept(
        &self,
        credentials: &Credentials,
        chain: &Chain,
        backend: &dyn Backend,
        accepted: Accepted,
        version: Version,
        may_be_remembered: bool,
    ) -> Outcome {
        let Accepted { user, rights, proof, expires } = accepted;
        // A back end must not let a client into another tenant than the one whose chain it is in. A client
        // without a user name gets its name, and with it its tenant, from the common chain.
        let is_own = match credentials.user.as_deref() {
            Some(_) => tenant_of(Some(&user)) == credentials.tenant() && user.contains('/'),
            None => tenant_of(Some(&user)).is_some() && user.contains('/'),
        };
        if !is_own {
            return Outcome::Denied(
                format!("{}: the user belongs to another tenant", backend.name()).into(),
            );
        }
        if let Err(error) = rights.check(&user) {
            return Outcome::Unavailable(
                format!(
                    "back end `{}`: the `rights` of the user are invalid: {error}",
                    backend.name()
                )
                .into(),
            );
        }
        let rules = if credentials.user.is_some() {
            Arc::clone(&chain.rules)
        } else {
            match self.chain_of(tenant_of(Some(&user)).unwrap_or_default()) {
                Ok(chain) => chain.rules,
                Err(error) => return Outcome::Unavailable(error.to_string().into()),
            }
        };
        let principal = Arc::new(Principal {
            policy: Arc::new(Policy::new(&rights, rules)),
            user,
            backend: backend.name().into(),
            proof,
            expires,
        });
        if let Some(tenant) = tenant_of(Some(&principal.user)) {
            self.tenants.insert(tenant.into(), ());
        }
        if may_be_remembered && self.version_of(&principal.user) == version {
            self.remembered.put(credentials, &principal, self.now());
        }
        Outcome::Accepted(principal, version)
    }

    /// Answers the first message of SCRAM. For a user that no back end has, and for one who has no keys, the
    /// answer looks like that for a user, and no proof will be right.
    async fn challenge(&self, credentials: &Credentials, message: &[u8]) -> Result<Step, Outcome> {
        let denied = |reason: String| Outcome::Denied(reason.into());
        let unavailable = |error: Unavailable| Outcome::Unavailable(error.to_string().into());
        let first = ClientFirst::read(message).map_err(|failure| denied(failure.to_string()))?;
        let user = Credentials::full(first.user());
        if credentials.user.as_ref().is_some_and(|named| *named != user) {
            return Err(denied("SCRAM names another user than CONNECT".into()));
        }
        let tenant = tenant_of(Some(&user));
        let tenant = tenant.ok_or_else(|| denied("the user name has no valid tenant".into()))?;
        let version = self.version_of(&user);
        let chain = self.chain_of(tenant).map_err(unavailable)?;
        let mut found = None;
        for backend in chain.backends.iter() {
            match backend.record(&user).await {
                Ok(None) => {}
                Ok(Some(record)) => {
                    found = Some((backend, record));
                    break;
                }
                Err(error) => {
                    self.counts.add(backend.name(), Verdict::Unavailable);
                    return Err(unavailable(error));
                }
            }
        }
        let keys = found
            .as_ref()
            .and_then(|(_, record)| Keys::of(&record.password).filter(|_| !record.disabled));
        let decoy = || chain.backends.iter().find_map(|backend| backend.decoy(&user));
        let (keys, is_user) = match keys {
            Some(keys) => (keys, true),
            None => (Keys::mock(&self.secret, &user, decoy().as_deref()), false),
        };
        let accepted = match found.filter(|_| is_user) {
            None => None,
            Some((backend, record)) => {
                let proof = password::proof(&record.password);
                let credentials = Credentials { user: Some(user.clone()), ..credentials.clone() };
                let accepted = Accepted { user, rights: record.rights, proof, expires: None };
                let backend = &**backend;
                match self.accept(&credentials, &chain, backend, accepted, version, false) {
                    Outcome::Accepted(principal, version) => Some((principal, version)),
                    other => return Err(other),
                }
            }
        };
        let (challenged, message) = first.challenge(keys, self.random.bytes());
        let exchange = Exchange { challenged, accepted };
        Ok(Step::Challenge(Box::new(exchange), message.into_bytes().into()))
    }

    /// Denies a login of a user that no back end knows. A password hash is verified first, which costs as much
    /// as that of a user, always the same one for a name. So the time does not tell whether a user exists, and
    /// unknown names cost no more than users.
    async fn take_as_long_as_for_a_user(
        &self,
        credentials: &Credentials,
        chain: &Chain,
    ) -> Outcome {
        let user = credentials.user.as_deref().unwrap_or_default();
        let decoys: Vec<_> =
            chain.backends.iter().filter_map(|backend| backend.decoy(user)).collect();
        let chosen = self.hasher.hash_one(user).checked_rem(decoys.len() as u64);
        let chosen = chosen.and_then(|chosen| usize::try_from(chosen).ok());
        if let Some(decoy) = chosen.and_then(|chosen| decoys.get(chosen)) {
            let client = (credentials.lane(), credentials.address);
            let password = credentials.password();
            let beginning = &password[..password.len().min(PASSWORD_MAX)];
            if self.hashing.verify(client, decoy.clone(), beginning).await.is_none() {
                return Outcome::Busy;
            }
        }
        Outcome::Denied("no back end has this user".into())
    }

    async fn renew(&self, principal: &Arc<Principal>, must_log_in: bool) -> Standing {
        let until = self.now().after(self.grace);
        loop {
            let renewed = self.look_up(principal, must_log_in).await;
            if let Some(standing) = renewed {
                return standing;
            }
            if self.now() >= until {
                return Standing::Gone {
                    reason: "the back end of the user could not be asked within the grace",
                    may_return: true,
                };
            }
            tokio::time::sleep(RENEWAL_PAUSE).await;
        }
    }

    /// Returns `None` if a back end cannot tell.
    async fn look_up(&self, principal: &Arc<Principal>, must_log_in: bool) -> Option<Standing> {
        let user = &*principal.user;
        let chain = self.chain_of(tenant_of(Some(user)).unwrap_or_default()).ok()?;
        let gone = |reason, may_return| Some(Standing::Gone { reason, may_return });
        for backend in chain.backends.iter() {
            match backend.renew(user, principal.proof).await {
                // The back end that has let the user in may not be able to look it up.
                Renewal::LogInAgain if *backend.name() != *principal.backend => {}
                Renewal::Unknown => {}
                Renewal::LogInAgain if must_log_in => {
                    return gone("the user has to log in again", true);
                }
                Renewal::LogInAgain => {
                    let policy = Arc::new(principal.policy.under(Arc::clone(&chain.rules)));
                    return Some(stays(principal, policy));
                }
                Renewal::Stays(_) if *backend.name() != *principal.backend => {
                    return gone("another back end has the user now", true);
                }
                Renewal::Stays(rights) => {
                    rights.check(user).ok()?;
                    let policy = Arc::new(Policy::new(&rights, Arc::clone(&chain.rules)));
                    return Some(stays(principal, policy));
                }
                Renewal::Gone(reason) => return gone(reason, false),
                Renewal::OtherPassword => return gone("the password has changed", true),
                Renewal::Unavailable(_) => return None,
            }
        }
        gone("the user has been removed", false)
    }
}

fn stays(principal: &Principal, policy: Arc<Policy>) -> Standing {
    let Principal { user, backend, proof, expires, .. } = principal;
    Standing::Stays(Arc::new(Principal {
        user: user.clone(),
        backend: Arc::clone(backend),
        proof: *proof,
        expires: *expires,
        policy,
    }))
}
