//! What all threads of a broker share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_store::DataDir;
use parking_lot::{Mutex, RwLock};

use crate::account::TenantSettings;
use crate::agenda::Agenda;
use crate::auth::Users;
use crate::clock::Clock;
use crate::denials::AllLines;
use crate::durable::{Commits, Shards};
use crate::entities::{Alarm, EntityError};
use crate::ids::ConnectionId;
use crate::queued::Full;
use crate::settings::Settings;
use crate::state_store::RequestTimes;
use crate::strangers::Strangers;
use crate::system_time::SYSTEM_TIME;
use crate::tenant::Tenants;
use crate::verifier::Verifier;
use crate::watchdog::Watchdog;

/// What all threads share.
pub struct Shared {
    /// The time.
    pub clock: Clock,
    /// The tenants.
    pub tenants: Tenants,
    /// What is due at a time.
    pub agenda: Agenda,
    /// The same, for entities.
    pub alarm: Arc<dyn Alarm>,
    /// How long requests to the state store take.
    pub request_times: Arc<RequestTimes>,
    /// Who verifies logins.
    pub verifier: Verifier,
    /// What connections without a session have collected.
    pub strangers: Arc<Strangers>,
    /// How long the turns of the IO threads take.
    pub watchdogs: Box<[Arc<Watchdog>]>,
    /// How much the log says of denials, of all tenants together.
    pub denial_lines: AllLines,
    /// The durable plane.
    pub shards: Arc<Shards>,
    /// Connections that were closed at once because too few file descriptors were left.
    pub refused_connections: Arc<AtomicU64>,
    /// Keeps other brokers away from the data directory.
    data_dir: Mutex<Option<DataDir>>,
    settings: RwLock<Arc<Settings>>,
    users: RwLock<Arc<Users>>,
    session_ids: AtomicU64,
    connection_ids: AtomicU64,
}

impl Shared {
    /// Of a broker with so many IO threads that does not run yet.
    pub fn new(
        settings: Settings,
        workers: usize,
        data_dir: DataDir,
        strangers: Arc<Strangers>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Besides the IO threads count housekeeping, one for each shard that reads back, and that of bindings.
        let counting = workers + 1 + data_dir.shards().len() + 1;
        let shards = Arc::new(Shards::new(data_dir.shards(), settings.storage.queue_memory));
        let sources = shards.sources().clone();
        let seed = RandomState::new().hash_one(0);
        let clock = Clock::start(SYSTEM_TIME);
        let agenda = Agenda::new(clock, sources.clone());
        Self {
            clock,
            tenants: Tenants::new(counting, settings.max_tenants, seed, Arc::clone(&shards)),
            shards,
            data_dir: Mutex::new(Some(data_dir)),
            alarm: Arc::new(agenda.clone()),
            agenda,
            request_times: RequestTimes::new(clock, sources),
            refused_connections: Arc::default(),
            verifier: Verifier::start(cores),
            strangers,
            watchdogs: (0..workers).map(|_| Arc::default()).collect(),
            denial_lines: AllLines::default(),
            users: RwLock::new(Arc::new(Users::new(&settings.users))),
            settings: RwLock::new(Arc::new(settings)),
            session_ids: AtomicU64::new(1),
            connection_ids: AtomicU64::new(1),
        }
    }

    /// Lets go of the data directory.
    pub fn close_data_dir(&self) {
        drop(self.data_dir.lock().take());
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// What a tenant gets of the settings as they are now.
    pub fn settings_of(&self, tenant: &str) -> TenantSettings {
        settings_of(&self.settings(), tenant)
    }

    /// The users as they are now.
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }

    /// A session's number.
    pub fn next_session_id(&self) -> u64 {
        self.session_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection's number.
    pub fn next_connection_id(&self) -> ConnectionId {
        ConnectionId(self.connection_ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Has the queues and topics that a configuration declares. The error comes with its tenant.
    pub fn declare(&self, settings: &Settings) -> Result<(), (String, EntityError)> {
        for (tenant, definitions) in settings.declared() {
            // As many as the configuration names, whatever clients may bring into being.
            let found = self.tenants.recover(&tenant, || settings_of(settings, &tenant));
            let entities = found.entities(&self.alarm);
            entities
                .declare(&definitions, &mut Commits::default())
                .map_err(|error| (tenant, error))?;
        }
        Ok(())
    }

    /// From now on these settings hold, as far as they can without a restart.
    pub fn apply(&self, settings: Settings) {
        *self.users.write() = Arc::new(Users::new(&settings.users));
        self.strangers.set_most(settings.max_connecting_bytes);
        self.tenants.set(settings.max_tenants, |tenant| settings_of(&settings, tenant));
        *self.settings.write() = Arc::new(settings);
        // Queues that were full may have room by the new limits.
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| session.look_for_room());
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn settings_of(settings: &Settings, tenant: &str) -> TenantSettings {
    TenantSettings {
        limits: Arc::new(settings.limits_of(tenant)),
        durability: Arc::new(settings.durability_of(tenant)),
        share_strategy: settings.shared_subscriptions.strategy,
    }
}
