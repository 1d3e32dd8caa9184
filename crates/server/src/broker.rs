//! The broker as a whole: start, reload and shutdown.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barid_core::durable::{RecoveryError, keys};
use barid_core::time::WallTime;
use barid_engine::bindings::Binding;
use barid_engine::context::Context;
use barid_engine::departures::Departures;
use barid_engine::durable::{Commits, Committing, DurableShard};
use barid_engine::entities::EntityError;
use barid_engine::entities::place_subscriptions;
use barid_engine::lanes::Lanes;
use barid_engine::names::DEFAULT_TENANT;
use barid_engine::opening;
use barid_engine::recovery::{self, Contents};
use barid_engine::router::Router;
use barid_engine::worker::Worker;
use barid_store::private::Exposure;
use barid_store::{DataDir, Engine, Options, StoreError};
use thiserror::Error;
use tracing::{error, info, warn};

use crate::admin::{self, Admin};
use crate::cluster::{Clustering, warn_of_misplaced};
use crate::descriptors::Descriptors;
use crate::event_loop::{EventLoop, IoThreads, Post};
use crate::listener::{Accepting, Acceptor};
use crate::peering::{ClusterThread, settle};
use crate::settings::{Auth, ClusterTls, Settings, StorageEngine, Tls};
use crate::shared::Shared;
use crate::sockets::{BoundSockets, ListeningSockets, alpn};
use crate::strangers::Strangers;
use crate::telemetry::Telemetry;
use crate::threads;
use crate::transport::{
    CertificateError, ListenerContext, OwnCertificate, revocations, server_config,
};

/// Maximum number of shards of a new data directory, unless the settings ask for another number.
const SHARDS_MAX: usize = 8;

/// Time at the start for other brokers of the cluster to tell their subscriptions.
const OTHERS_WITHIN: Duration = Duration::from_secs(3);

/// Time in which the other brokers of the cluster that are up are to have sent what this one lacks when it starts: more than a million
/// retained messages take.
const OBJECTS_WITHIN: Duration = Duration::from_secs(60);

/// A running broker.
pub struct Broker {
    shared: Arc<Shared>,
    lanes: Lanes,
    listeners: Vec<(Arc<ListenerContext>, SocketAddr)>,
    accepting: Accepting,
    threads: IoThreads,
    loops: Vec<JoinHandle<()>>,
    housekeeping: JoinHandle<()>,
    bindings: JoinHandle<()>,
    admin: Admin,
    cluster: Option<ClusterThread>,
    telemetry: Option<Telemetry>,
}

/// The outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Changed settings that are in force now.
    pub applied: Vec<String>,
    /// Changed settings that take effect after a restart.
    pub needs_restart: Vec<String>,
}

/// Why a broker could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The broker cannot listen on an address.
    #[error("cannot listen on {address} for {name}: {source}{}", hint(source))]
    Listen {
        /// The name of the listener.
        name: &'static str,
        /// The address of the listener.
        address: SocketAddr,
        /// The cause of the error.
        source: io::Error,
    },
    /// The admin address can be reached from the network, and the admin API has no password.
    #[error(
        "the admin address {0} can be reached from the network, and the admin API has no password: listen on \
         127.0.0.1 or [::1], and on `admin.https` for other machines"
    )]
    AdminExposed(SocketAddr),
    /// A TLS listener is configured without certificates.
    #[error("the {0} listener needs certificates: add [tls] with certificate and key")]
    NoCertificates(&'static str),
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The data directory cannot be used.
    #[error("cannot use the data directory {path}: {source}")]
    DataDir {
        /// The path of the data directory.
        path: String,
        /// The cause of the error.
        source: StoreError,
    },
    /// The contents of the data directory cannot be read.
    #[error("cannot read the data directory {path}: {source}")]
    Recovery {
        /// The path of the data directory.
        path: String,
        /// The cause of the error.
        source: RecoveryError,
    },
    /// Nothing can be written to the data directory.
    #[error("cannot write to the data directory {path}; see the log")]
    Unwritable {
        /// The path of the data directory.
        path: String,
    },
    /// The queues and topics in the configuration conflict with existing ones.
    #[error("cannot apply the configured queues and topics of tenant {tenant}: {source}")]
    Entities {
        /// The name of the tenant.
        tenant: String,
        /// The cause of the error.
        source: EntityError,
    },
    /// Another operation of the operating system failed.
    #[error("operating system error: {0}")]
    System(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another program, perhaps another broker, listens on it: stop it or choose another port)"
        }
        io::ErrorKind::PermissionDenied => {
            " (ports below 1024 need privileges: choose another port)"
        }
        io::ErrorKind::AddrNotAvailable => " (this machine does not have this address)",
        _ => "",
    }
}

impl Broker {
    /// Starts a broker, which accepts connections when this returns.
    ///
    /// All addresses are bound before anything else is done. No client can connect to any of them before
    /// every other step that can fail has succeeded.
    ///
    /// # Errors
    /// Fails if an address, a certificate or the data directory cannot be used. Nothing runs then.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = if settings.workers == 0 { cores } else { settings.workers };
        let descriptors = Descriptors::raise();
        let strangers = Arc::new(Strangers::new(settings.max_connecting_bytes));
        let sockets = BoundSockets::bind(&settings, &strangers)?;
        let acceptor = Acceptor::new()?;
        let loops = (0..workers).map(|_| EventLoop::new()).collect::<io::Result<Vec<_>>>()?;
        let path = settings.data_dir.display().to_string();
        let data_dir = open_data_dir(&settings, cores, descriptors)
            .map_err(|source| StartError::DataDir { path: path.clone(), source })?;
        tell_exposure(&data_dir);
        let (lanes, lane_events) = Lanes::new();
        let cluster_address = sockets.cluster_address();
        let shared = Shared::new(settings, workers, data_dir, strangers, cluster_address)?;
        let shared = Arc::new(shared);
        shared.engine.tenants.recover(DEFAULT_TENANT);
        let moved = place_subscriptions(&shared.engine.shards)
            .map_err(|source| StartError::DataDir { path: path.clone(), source })?;
        if moved > 0 {
            info!(subscriptions = moved, "moved subscriptions to the shards of their topics");
        }
        let contents = read_all(&shared.engine)
            .map_err(|source| StartError::Recovery { path: path.clone(), source })?;
        let recovered = opening::recover(&shared.engine, contents);
        info!(
            data_dir = path,
            sessions = recovered.sessions,
            queued = recovered.queued,
            retained = recovered.retained,
            keys = recovered.keys,
            managed = recovered.managed,
            millis = shared.engine.clock.uptime().as_millis() as u64,
            "recovered the data directory"
        );
        if let Some(clustering) = &shared.cluster
            && let Some(tls) = shared.settings().cluster.as_ref().and_then(|it| it.tls.as_ref())
        {
            clustering.note_certificate(expiry_of(tls));
        }
        let clock = shared.engine.clock;
        let mut committers: Vec<_> =
            shared.engine.shards.iter().map(|shard| shard.committing(clock)).collect();
        if !committers.iter_mut().all(Committing::begin) {
            return Err(StartError::Unwritable { path });
        }
        shared
            .declare(&shared.settings())
            .map_err(|(tenant, source)| StartError::Entities { tenant, source })?;
        configure_bindings(&shared, &lanes, &shared.settings());
        if let Some(tls) = &shared.settings().tls {
            shared.read_certificate(tls);
        }
        // The listeners have read the same files, so an error is one of this moment, and only costs a warning.
        if let Some(revocations) =
            shared.settings().tls.as_ref().and_then(|tls| revocations(tls).ok())
        {
            shared.logins.set_revocations(revocations);
        }
        let ListeningSockets { listening, listeners, admin, cluster } =
            sockets.listen(&acceptor)?;
        // From here on nothing can fail, and threads run.
        let worker = |id| Worker { id, now: shared.engine.clock.now() };
        let context = |id| Context {
            worker: worker(id),
            engine: Arc::clone(&shared.engine),
            router: Router::new(shared.engine.random),
            departures: Departures::default(),
        };
        for (shard, committing) in shared.engine.shards.iter().zip(committers) {
            shared.shards.start(&shared.engine, &shard, committing);
        }
        if let Some(clustering) = &shared.cluster {
            if let Err(reason) = settle(&shared) {
                error!("a slot of the cluster is not in order: {reason}");
            }
            warn_of_misplaced(clustering, &shared.engine);
        }
        let seen = loops.iter().zip(&shared.watchdogs);
        let threads = IoThreads::new(seen.map(|(one, dog)| one.as_thread(dog)).collect());
        let loops = loops
            .into_iter()
            .enumerate()
            .map(|(id, event_loop)| {
                event_loop.start(context(id), Arc::clone(&shared), threads.clone(), id)
            })
            .collect();
        let housekeeping = threads::keep_house(context(workers));
        let bindings = threads::run_lanes(
            lane_events.runner(context(workers + 1 + shared.engine.shards.count())),
        );
        let admin = admin.start(Arc::clone(&shared), lanes.clone(), descriptors);
        let cluster = cluster.zip(shared.cluster.clone()).map(|(listening, clustering)| {
            let peers = shared.settings().cluster.as_ref().map(|cluster| cluster.peers.clone());
            let peers = peers.unwrap_or_default();
            let (shared, threads) = ((Arc::clone(&shared), lanes.clone()), threads.clone());
            listening.start(clustering, shared, threads, descriptors, peers)
        });
        if let Some(clustering) = &shared.cluster {
            wait_for_others(clustering, &shared.engine);
        }
        let telemetry = shared.settings().telemetry.as_ref().map(|settings| {
            let shared = Arc::clone(&shared);
            Telemetry::start(shared, settings)
        });
        let checking = threads.clone();
        shared.logins.follow(move |change| checking.check(change));
        let refused = Arc::clone(&shared.refused_connections);
        let accepting = acceptor.start(listening, threads.clone(), descriptors, refused);
        Ok(Self {
            shared,
            lanes,
            listeners,
            accepting,
            threads,
            loops,
            housekeeping,
            bindings,
            admin,
            cluster,
            telemetry,
        })
    }

    /// Answers the requests in `sent`, as if a client of the admin address had sent these bytes over one
    /// connection. For tests and fuzzing.
    ///
    /// # Errors
    /// Fails if the operating system has run out of a resource.
    pub fn converse(&self, sent: &[u8]) -> io::Result<Vec<u8>> {
        admin::converse(&self.shared, &self.lanes, sent)
    }

    /// Whether any client may connect to the tenant `default`, with any password.
    pub fn allows_anybody(&self) -> bool {
        self.shared.logins.authenticator.allows_anybody(DEFAULT_TENANT)
    }

    /// Returns the name and the address of each listener: `mqtt`, `mqtts`, `ws`, `wss`, `amqp`, `amqps`,
    /// `admin`, `admin.https`, `management`.
    pub fn listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let mut all: Vec<_> =
            self.listeners.iter().map(|(context, address)| (context.name, *address)).collect();
        all.push(("admin", self.admin.address()));
        all.extend(self.admin.https().map(|address| ("admin.https", address)));
        all.extend(self.admin.management().map(|address| ("management", address)));
        all
    }

    /// Applies the new settings that can change while the broker runs.
    pub fn reload(&self, new: &Settings) -> ReloadReport {
        let old = self.shared.settings();
        let mut report = ReloadReport::default();
        let mut applied = old.as_ref().clone();
        let mut note = |changed: bool, what: &str| {
            if changed {
                report.applied.push(what.to_owned());
            }
        };
        note(old.limits != new.limits, "limits");
        note(old.tenants != new.tenants, "tenants");
        note(old.durability != new.durability, "durability (for clients that connect from now on)");
        note(old.max_tenants != new.max_tenants, "max_tenants");
        note(old.max_connecting_bytes != new.max_connecting_bytes, "max_connecting_bytes");
        note(old.users != new.users, "users");
        let of_backends = |auth: &Auth| Auth {
            hash_threads: 0,
            remembered: 0,
            fresh: 0,
            grace: 0,
            ..auth.clone()
        };
        note(of_backends(&old.auth) != of_backends(&new.auth), "auth");
        note(old.strict_user_names != new.strict_user_names, "strict_user_names");
        note(old.shared_subscriptions != new.shared_subscriptions, "shared_subscriptions");
        note(old.keys != new.keys, "keys (for tokens that come from now on)");
        // Limits come first, because the queues and topics declared below may need the new ones.
        self.shared.apply_to_tenants(new);
        let declares = old.queues != new.queues || old.topics != new.topics;
        let declared = if declares { self.shared.declare(new) } else { Ok(()) };
        note(declares && declared.is_ok(), "queues and topics");
        note(old.bindings != new.bindings, "bindings");
        configure_bindings(&self.shared, &self.lanes, new);
        note(old.admin.tokens != new.admin.tokens, "admin.tokens");
        let rates = (old.admin.max_request_rate, new.admin.max_request_rate);
        note(rates.0 != rates.1, "admin.max_request_rate");
        note(old.sys != new.sys, "sys");
        note(old.log.level != new.log.level, "log");
        applied.limits = new.limits.clone();
        applied.tenants = new.tenants.clone();
        applied.durability = new.durability.clone();
        applied.max_tenants = new.max_tenants;
        applied.max_connecting_bytes = new.max_connecting_bytes;
        applied.users = new.users.clone();
        let Auth { hash_threads, remembered, fresh, grace, .. } = old.auth;
        applied.auth = Auth { hash_threads, remembered, fresh, grace, ..new.auth.clone() };
        applied.strict_user_names = new.strict_user_names;
        applied.shared_subscriptions = new.shared_subscriptions.clone();
        applied.keys = new.keys.clone();
        applied.bindings = new.bindings.clone();
        match declared {
            Ok(()) => {
                applied.queues = new.queues.clone();
                applied.topics = new.topics.clone();
            }
            Err((tenant, error)) => {
                tracing::error!(
                    tenant,
                    "not all queues and topics could be applied as configured: {error}"
                );
            }
        }
        applied.admin.tokens = new.admin.tokens;
        applied.admin.max_request_rate = new.admin.max_request_rate;
        applied.sys = new.sys.clone();
        applied.log.level.clone_from(&new.log.level);
        // Always read again, because the files may have changed under the same names.
        if let Some(tls) = &new.tls {
            match self.renew_certificates(tls) {
                Ok(false) => {}
                Ok(true) => {
                    report.applied.push("tls (for clients that connect from now on)".into());
                    applied.tls = new.tls.clone();
                    self.shared.read_certificate(tls);
                    match revocations(tls) {
                        Ok(revocations) => self.shared.logins.set_revocations(revocations),
                        Err(error) => tracing::error!("{error}"),
                    }
                }
                Err(error) => {
                    tracing::error!("cannot reload the certificates, keeping the old ones: {error}")
                }
            }
        }
        let old_links = old.cluster.as_ref().and_then(|cluster| cluster.tls.as_ref());
        if let (Some(tls), Some(thread)) = (old_links, &self.cluster) {
            match thread.encryption().renew(tls) {
                Ok(()) => {
                    report.applied.push("the files of cluster.tls (for links from now on)".into());
                    if let Some(clustering) = &self.shared.cluster {
                        clustering.note_certificate(expiry_of(tls));
                    }
                }
                Err(error) => tracing::error!(
                    "cannot reload the certificates of cluster.tls, keeping the old ones: {error}"
                ),
            }
        }
        let mut needs = |changed: bool, what: &str| {
            if changed {
                report.needs_restart.push(what.to_owned());
            }
        };
        needs(old.listeners != new.listeners, "listeners");
        needs(old.log.format != new.log.format, "log.format");
        needs(old.admin.address != new.admin.address, "admin.address");
        needs(old.admin.https != new.admin.https, "admin.https");
        needs(old.management != new.management, "management");
        needs(old.data_dir != new.data_dir, "data_dir");
        needs(old.storage != new.storage, "storage");
        needs(old.workers != new.workers, "workers");
        needs(old.cluster != new.cluster, "cluster");
        needs(old.telemetry != new.telemetry, "telemetry");
        let of_authenticator =
            |auth: &Auth| (auth.hash_threads, auth.remembered, auth.fresh, auth.grace);
        needs(
            of_authenticator(&old.auth) != of_authenticator(&new.auth),
            "auth.hash_threads, auth.remembered, auth.fresh, auth.grace",
        );
        // The files that the settings of a back end name may have changed, and the settings not.
        let is_noted = report.applied.iter().any(|what| what == "auth");
        if self.shared.apply(applied) && !is_noted {
            report.applied.push("auth".into());
        }
        report
    }

    /// Reads the certificates again. Returns false if there is no TLS listener.
    fn renew_certificates(&self, tls: &Tls) -> Result<bool, CertificateError> {
        let mut renewed = false;
        for (context, _) in &self.listeners {
            if let Some(config) = &context.tls {
                *config.write() = Arc::new(server_config(tls, alpn(context.name))?);
                renewed = true;
            }
        }
        for encryption in self.admin.encryptions() {
            *encryption.config.write() = Arc::new(server_config(tls, alpn("management"))?);
            renewed = true;
        }
        Ok(renewed)
    }

    /// Stops the broker: accepts no more connections, sends DISCONNECT to all clients, and gives them a
    /// moment to close.
    pub fn shutdown(self) {
        self.accepting.stop();
        if let Some(cluster) = self.cluster {
            cluster.stop();
        }
        for thread in self.threads.iter() {
            thread.mailbox().post(Post::Shutdown);
        }
        for thread in self.loops {
            let _ = thread.join();
        }
        self.lanes.close();
        let _ = self.bindings.join();
        self.shared.engine.agenda.close();
        let _ = self.housekeeping.join();
        self.admin.stop();
        if let Some(telemetry) = self.telemetry {
            telemetry.stop();
        }
        for tenant in self.shared.engine.tenants.all() {
            if let Some(entities) = tenant.used_entities() {
                entities.note_numbers(&mut Commits::default());
            }
        }
        // Last, so that what clients did while they disconnected is committed, too.
        self.shared.shards.end(&self.shared.engine);
        self.shared.close_data_dir();
    }
}

/// Returns when the certificate for links expires.
fn expiry_of(tls: &ClusterTls) -> Option<WallTime> {
    OwnCertificate::read(&tls.of_listener())?.expires()
}

/// Waits until the other brokers have told their subscriptions, or do not answer, and then until they have sent the objects
/// that this one lacks. Connections are accepted afterwards. Without a quorum, clients are refused.
fn wait_for_others(clustering: &Clustering, engine: &barid_engine::engine::Engine) {
    let until = Instant::now() + OTHERS_WITHIN;
    while !clustering.may_serve(engine) && clustering.is_being_heard() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let until = Instant::now() + OBJECTS_WITHIN;
    while clustering.is_being_told() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Applies the bindings of a configuration, and notifies the thread of the lanes.
fn configure_bindings(shared: &Shared, lanes: &Lanes, settings: &Settings) {
    let mut by_tenant = BTreeMap::<&str, Vec<Binding>>::new();
    for binding in &settings.bindings {
        by_tenant.entry(&binding.tenant).or_default().push(binding.clone());
    }
    for name in by_tenant.keys() {
        // Bindings in the configuration create their tenants regardless of `max_tenants`, which limits
        // clients.
        shared.engine.tenants.recover(name);
    }
    for tenant in shared.engine.tenants.all() {
        tenant.bindings.configure(by_tenant.remove(&*tenant.name).unwrap_or_default());
        lanes.changed(&tenant);
    }
}

/// Reads the stores of all shards, with one thread for each.
fn read_all(engine: &barid_engine::engine::Engine) -> Result<Vec<Contents>, RecoveryError> {
    std::thread::scope(|scope| {
        let read = |shard: Arc<DurableShard>| {
            scope.spawn(move || {
                let mut contents = recovery::read(engine, &shard)?;
                contents.announce(engine);
                Ok(contents)
            })
        };
        let threads: Vec<_> = engine.shards.iter().map(read).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    })
}

fn open_data_dir(
    settings: &Settings,
    cores: usize,
    descriptors: Descriptors,
) -> Result<DataDir, StoreError> {
    let storage = &settings.storage;
    let wanted = if storage.shards == 0 { cores.min(SHARDS_MAX) } else { storage.shards };
    let options = Options {
        shards: Some(wanted),
        engine: match storage.engine {
            StorageEngine::Log => Engine::Log,
            StorageEngine::Lsm => Engine::Lsm,
        },
        keyspaces: &keys::NAMES,
        cache_bytes: storage.cache as u64,
        reserve_bytes: storage.min_free,
        open_files: usize::try_from(descriptors.reserve() / 2).unwrap_or(usize::MAX),
        ..Options::default()
    };
    DataDir::open(&settings.data_dir, &options)
}

/// Logs that other users of the machine could read the data directory, or still can.
fn tell_exposure(data_dir: &DataDir) {
    let path = data_dir.path().display();
    match data_dir.exposure() {
        Exposure::None => {}
        Exposure::Ended(mode) => info!(
            "the data directory {path} had mode {mode:o}, which allowed other users to read it; restricted \
             it to its owner"
        ),
        Exposure::Stays(mode, error) => warn!(
            %error,
            "the data directory {path} has mode {mode:o}, which allows other users to read it, and it cannot be \
             changed: make the broker's user its owner and run `chmod 700`"
        ),
    }
}
