//! State that all threads of a broker share.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_auth::bans::Bans;
use barid_auth::stored::StoredTenant;
use barid_core::time::WallTime;
use barid_engine::account::TenantSettings;
use barid_engine::amqp::{Key, Keys};
use barid_engine::clock::Clock;
use barid_engine::durable::Storage;
use barid_engine::engine::{Engine, EngineSettings};
use barid_engine::entities::EntityError;
use barid_engine::ids::ConnectionId;
use barid_engine::managed::{Managed, ManagedKind};
use barid_engine::names::{full_name, tenant_of};
use barid_store::{DataDir, private};
use parking_lot::{Mutex, RwLock};
use tracing::warn;

use crate::cluster::{Clustering, follow_moves};
use crate::logins::Logins;
use crate::message_traces::{MessageTraces, Spans};
use crate::settings::{Settings, Tls};
use crate::shards::Shards;
use crate::strangers::Strangers;
use crate::system;
use crate::telemetry_counts::TelemetryCounts;
use crate::tenant_labels::Labels;
use crate::transport::OwnCertificate;
use crate::watchdog::Watchdog;

/// State that all threads of a broker share: the engine, and the resources outside the engine.
pub struct Shared {
    /// The engine: tenants, agenda, shards and clock.
    pub engine: Arc<Engine>,
    /// The bans that operators have made.
    pub bans: Arc<Bans>,
    /// The service that decides on logins.
    pub logins: Arc<Logins>,
    /// The bytes that connections without a session have buffered.
    pub strangers: Arc<Strangers>,
    /// The watchdog of each IO thread, which measures its turns.
    pub watchdogs: Box<[Arc<Watchdog>]>,
    /// Connections that were closed at once because too few file descriptors were left.
    pub refused_connections: Arc<AtomicU64>,
    /// The threads of the shards.
    pub shards: Shards,
    /// The spans of messages; `None`: messages are not traced.
    pub spans: Option<Arc<Spans>>,
    /// Counts of the spans that were sent to the collector or given up, and of failed requests.
    pub telemetry: TelemetryCounts,
    /// The tenants that have metrics of their own.
    pub labels: Labels,
    /// The cluster that the broker belongs to.
    pub cluster: Option<Arc<Clustering>>,
    /// The data directory, from which it keeps other brokers away; `None`: it has been released.
    data_dir: Mutex<Option<DataDir>>,
    /// The certificate of the TLS listeners.
    certificate: Mutex<Option<OwnCertificate>>,
    settings: RwLock<Arc<Settings>>,
    connection_ids: AtomicU64,
    admin_worker: usize,
}

impl Shared {
    /// Creates the state of a broker with `workers` IO threads, none of which runs yet.
    ///
    /// # Errors
    /// Fails if the operating system has no more threads or file descriptors.
    pub fn new(
        settings: Settings,
        workers: usize,
        data_dir: DataDir,
        strangers: Arc<Strangers>,
        cluster_address: Option<SocketAddr>,
    ) -> io::Result<Self> {
        // The threads with counters of their own: IO threads, housekeeping, the loader of each shard, that of
        // bindings, and that of the admin address.
        let shards = data_dir.shards().len();
        let admin_worker = workers + 1 + shards + 1;
        let counting = admin_worker + 1;
        let clock = Clock::start(system::TIME);
        let threads_and_memory = (counting, settings.storage.queue_memory);
        let cluster = settings.cluster.as_ref().map(|cluster| {
            let listen = cluster_address.unwrap_or(cluster.listen).to_string();
            let address = cluster.advertise.clone().unwrap_or(listen);
            let numbers = (settings.common(), clock.wall().as_millis());
            let own = (system::RANDOM, data_dir.path());
            Clustering::new(cluster, address, (workers, shards), numbers, own)
        });
        let engine = Arc::new(Engine::in_cluster(
            engine_settings(&settings, None),
            threads_and_memory,
            Storage::local(data_dir.shards()),
            (clock, system::RANDOM),
            cluster.as_ref().map(|cluster| Arc::clone(cluster.engine())),
        ));
        engine.apply(engine_settings(&settings, Some(&engine.managed)));
        follow_tenants(&engine);
        if let Some(clustering) = &cluster
            && let Some(slots) = clustering.slots()
        {
            follow_moves(&engine, slots, &clustering.moves.changed);
        }
        let spans = spans(&settings);
        if let Some(spans) = &spans {
            engine.tenants.trace_messages(Arc::new(MessageTraces(Arc::clone(spans))));
        }
        // Other brokers know connections by their numbers, and take one with a smaller number for an earlier one. So a broker that
        // is started again goes on behind those that it has given, of which there were fewer than a million in a second.
        let first_connection = cluster.as_ref().map_or(1, |_| clock.wall().as_millis() * 1_000);
        // Before the logins, which have connected clients checked after a new ban.
        let bans = Bans::new(Arc::clone(&engine.managed), clock);
        let settings = Arc::new(settings);
        let secret = login_secret(data_dir.path());
        let logins = Logins::start(&settings, &engine.managed, secret, clock, system::RANDOM)?;
        Ok(Self {
            logins,
            bans,
            engine,
            shards: Shards::new(shards, workers + 1),
            cluster,
            data_dir: Mutex::new(Some(data_dir)),
            certificate: Mutex::default(),
            refused_connections: Arc::default(),
            labels: Labels::default(),
            spans,
            telemetry: TelemetryCounts::default(),
            strangers,
            watchdogs: (0..workers).map(|_| Arc::default()).collect(),
            settings: RwLock::new(settings),
            connection_ids: AtomicU64::new(first_connection),
            admin_worker,
        })
    }

    /// Releases the data directory.
    pub fn close_data_dir(&self) {
        drop(self.data_dir.lock().take());
    }

    /// When the certificate of the TLS listeners expires; `None`: there is none, or that cannot be read.
    pub fn certificate_expires(&self) -> Option<WallTime> {
        self.certificate.lock().as_ref()?.expires()
    }

    /// Whether the certificate of the TLS listeners is for the host of this name.
    pub fn is_certified(&self, host: &str) -> bool {
        self.certificate.lock().as_ref().is_some_and(|certificate| certificate.is_for(host))
    }

    /// Reads the certificate, which the listeners have read before.
    pub fn read_certificate(&self, tls: &Tls) {
        *self.certificate.lock() = OwnCertificate::read(tls);
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Returns the number of the thread of the admin address, for its counters.
    pub fn admin_worker(&self) -> usize {
        self.admin_worker
    }

    /// Returns a number that no other connection has. It is greater than all before, and small enough for a JSON number (2^53).
    pub fn next_connection_id(&self) -> ConnectionId {
        ConnectionId(self.connection_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Declares the queues and topics of a configuration. An error comes with the name of its tenant.
    pub fn declare(&self, settings: &Settings) -> Result<(), (String, EntityError)> {
        self.engine.declare(settings.declared())
    }

    /// Applies the settings of tenants, both to existing tenants and to those that are created later.
    pub fn apply_to_tenants(&self, settings: &Settings) {
        self.engine.apply(engine_settings(settings, Some(&self.engine.managed)));
    }

    /// Applies all other settings that can change without a restart. Returns whether a back end of logins was replaced.
    pub fn apply(&self, settings: Settings) -> bool {
        self.strangers.set_most(settings.max_connecting_bytes);
        let new = Arc::new(settings);
        if let Some(cluster) = &self.cluster {
            cluster.set_settings(new.common());
        }
        let old = std::mem::replace(&mut *self.settings.write(), Arc::clone(&new));
        self.logins.reload(&old, &new)
    }
}

impl Keys for Shared {
    fn find(&self, listener: SocketAddr, name: &str) -> Option<Key> {
        let settings = self.settings();
        let keys = settings.keys_or_emulator(listener);
        let found = keys.iter().find(|key| full_name(&key.name) == full_name(name))?;
        let secret = found.key.clone();
        Some(Key {
            name: found.name.clone(),
            secret: secret.expect("who reads the configuration reads the files of keys"),
            rights: found.rights.clone(),
            entity: found.entity.clone(),
        })
    }

    fn are_in(&self, tenant: &str) -> bool {
        let of = |name| tenant_of(Some(name)) == Some(tenant);
        let settings = self.settings();
        settings.keys.iter().any(|key| of(&key.name)) || self.logins.know_tenant(&settings, tenant)
    }

    fn know_homes(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.slots().is_some())
    }

    fn home_elsewhere(&self, tenant: &str) -> Option<Box<str>> {
        self.cluster.as_ref()?.home_elsewhere(tenant).map(|home| (*home).into())
    }

    fn ban(
        &self,
        user: Option<&str>,
        tenant: &str,
        container_id: &str,
        address: IpAddr,
    ) -> Option<String> {
        self.bans.check(user, tenant, container_id, address).map(|ban| ban.explanation())
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Creates the collection of spans, if messages are traced.
fn spans(settings: &Settings) -> Option<Arc<Spans>> {
    let telemetry = settings.telemetry.as_ref().filter(|telemetry| telemetry.traces > 0.0)?;
    Some(Arc::new(Spans::new(telemetry.traces, telemetry.trace_rate, system::RANDOM)))
}

/// Gives a tenant its limits whenever an operator has changed them.
fn follow_tenants(engine: &Arc<Engine>) {
    let following = Arc::downgrade(engine);
    engine.managed.on_change(move |kind, tenant| {
        if let Some(engine) = following.upgrade().filter(|_| kind == ManagedKind::Tenant) {
            engine.refresh(tenant);
        }
    });
}

/// Returns the settings of the engine: those of a configuration, and above them those of `managed` tenants.
fn engine_settings(settings: &Settings, managed: Option<&Arc<Managed>>) -> EngineSettings {
    let (of_tenants, managed) = (settings.clone(), managed.cloned());
    EngineSettings {
        max_tenants: settings.max_tenants,
        settings_of: Arc::new(move |tenant| settings_of(&of_tenants, managed.as_deref(), tenant)),
        sys_interval: settings.sys.interval,
    }
}

/// Reads the secret of logins, which is made when a data directory has none.
fn login_secret(data_dir: &Path) -> [u8; 32] {
    let path = data_dir.join("login.secret");
    let made: [u8; 32] = system::RANDOM.bytes();
    let write = || -> io::Result<()> {
        let mut file = private::options().write(true).create_new(true).open(&path)?;
        file.write_all(&made)?;
        file.sync_all()
    };
    match std::fs::read(&path).map(<[u8; 32]>::try_from) {
        Ok(Ok(secret)) => return secret,
        Ok(Err(_)) => warn!("{} is damaged, and is not used", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Err(error) = write() {
                warn!("cannot write {}: {error}", path.display());
            }
        }
        Err(error) => warn!("cannot read {}: {error}", path.display()),
    }
    made
}

fn settings_of(settings: &Settings, managed: Option<&Managed>, tenant: &str) -> TenantSettings {
    let stored = managed.map_or(Ok(None), |managed| StoredTenant::of(managed, tenant));
    let set = stored.unwrap_or_else(|error| {
        tracing::error!("the limits of the configuration apply: {error}");
        None
    });
    let limits = settings.limits_under(tenant, set.unwrap_or_default().limits);
    TenantSettings {
        durability: Arc::new(settings.durability_of(tenant, &limits)),
        limits: Arc::new(limits),
        share_strategy: settings.shared_subscriptions.strategy,
    }
}
