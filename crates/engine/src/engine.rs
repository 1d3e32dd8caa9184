//! The engine: tenants, agenda, shards and clock, shared by all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::agenda::Agenda;
use crate::clock::Clock;
use crate::denials::AllLines;
use crate::durable::{Commits, Shards, Storage};
use crate::entities::{Alarm, Definitions, EntityError};
use crate::queued::Full;
use crate::random::Random;
use crate::rounds::Rounds;
use crate::state_store::RequestTimes;
use crate::tenant::{SettingsOf, Tenants};

/// The engine: what all threads share, but for what belongs to the outside.
pub struct Engine {
    /// The clock.
    pub clock: Clock,
    /// The source of random numbers.
    pub random: Random,
    /// The tenants.
    pub tenants: Tenants,
    /// Tasks that are due at a time.
    pub agenda: Agenda,
    /// The agenda, as entities know it.
    pub alarm: Arc<dyn Alarm>,
    /// How long requests to the state store take.
    pub request_times: Arc<RequestTimes>,
    /// How much the log says of denials, of all tenants together.
    pub denial_lines: AllLines,
    /// The durable plane.
    pub shards: Arc<Shards>,
    /// The rounds of those who count.
    pub rounds: Rounds,
    sys_interval: AtomicU32,
    session_ids: AtomicU64,
}

/// What of the settings an engine needs and a reload may change.
#[derive(Clone)]
pub struct EngineSettings {
    /// The most tenants that clients may bring into being.
    pub max_tenants: usize,
    /// What each tenant gets.
    pub settings_of: SettingsOf,
    /// Seconds between two publications of the `$SYS` topics; 0: there are none.
    pub sys_interval: u32,
}

impl Engine {
    /// An engine over this storage. So many threads count what they do, each for itself; stored
    /// messages that wait may take so many bytes of memory.
    pub fn new(
        settings: EngineSettings,
        (counting, queue_memory): (usize, usize),
        storage: Storage,
        clock: Clock,
        random: Random,
    ) -> Self {
        let EngineSettings { max_tenants, settings_of, sys_interval } = settings;
        let shards = Arc::new(Shards::new(storage, queue_memory));
        let sources = shards.sources().clone();
        let agenda = Agenda::new(clock, sources.clone());
        Self {
            clock,
            random,
            tenants: Tenants::new(counting, max_tenants, settings_of, random, Arc::clone(&shards)),
            shards,
            alarm: Arc::new(agenda.clone()),
            agenda,
            request_times: RequestTimes::new(clock, sources),
            rounds: Rounds::new(counting),
            denial_lines: AllLines::default(),
            sys_interval: AtomicU32::new(sys_interval),
            session_ids: AtomicU64::new(1),
        }
    }

    /// A session's number.
    pub fn next_session_id(&self) -> u64 {
        self.session_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Seconds between two publications of the `$SYS` topics; 0: there are none.
    pub fn sys_interval(&self) -> u32 {
        self.sys_interval.load(Ordering::Relaxed)
    }

    /// Declares the queues and topics of each tenant.
    ///
    /// # Errors
    /// The first that cannot be declared, with the name of its tenant.
    pub fn declare(
        &self,
        definitions: impl IntoIterator<Item = (String, Definitions)>,
    ) -> Result<(), (String, EntityError)> {
        for (tenant, definitions) in definitions {
            // As many as the configuration names, whatever clients may bring into being.
            let found = self.tenants.recover(&tenant);
            let entities = found.entities(&self.alarm);
            entities
                .declare(&definitions, &mut Commits::default())
                .map_err(|error| (tenant, error))?;
        }
        Ok(())
    }

    /// Puts these settings in force, also for tenants that are there.
    pub fn apply(&self, settings: EngineSettings) {
        self.sys_interval.store(settings.sys_interval, Ordering::Relaxed);
        self.tenants.set(settings.max_tenants, settings.settings_of);
        // Queues that were full may have room by the new limits.
        for tenant in self.tenants.all() {
            tenant.sessions.for_each(|session| session.look_for_room());
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
