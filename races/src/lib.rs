//! The engine with threads whose order a scheduler decides.
//!
//! IO threads, committers and logs are those of a broker, but each lock, condition variable and atomic of the engine at
//! which threads can meet is a place where the scheduler may let another thread go on. It tries many orders. A thread that
//! waits for ever is reported as a deadlock; so a wake-up that is lost is found, too.

mod client;
mod io;
mod log;
mod wire;

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use barid_core::durable::keys;
use barid_engine::account::TenantSettings;
use barid_engine::clock::{Clock, TimeSource};
use barid_engine::departures::Departures;
use barid_engine::durability::{Durability, DurabilityClass};
use barid_engine::durable::{DurableShard, Storage};
use barid_engine::engine::{Engine, EngineSettings};
use barid_engine::housekeeping::Housekeeper;
use barid_engine::lifecycle::Context;
use barid_engine::limits::{Limits, ShareStrategy};
use barid_engine::random::Random;
use barid_engine::{opening, recovery};
use barid_engine::router::Router;
use barid_engine::worker::Worker;
use barid_store::Store;
use barid_store::memory::Disk;
use shuttle::thread::{self, JoinHandle};

pub use client::{Client, Heard};
use io::IoThread;
use log::{Held, SlowLog};

/// The one tenant.
const TENANT: &str = "default";

/// Bytes of messages that wait in memory: all of them.
const IN_MEMORY_MAX: usize = usize::MAX;

thread_local! {
    /// All threads of an execution run on one of the operating system.
    static RNG: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time stands still.
const TIME: TimeSource = TimeSource { ticks: || *EPOCH, unix: || Duration::from_secs(1_000) };

/// The same numbers in each execution.
const RANDOM: Random = Random(|bytes| RNG.with_borrow_mut(|rng| rng.fill(bytes)));

/// A broker, with its threads.
pub struct Broker {
    engine: Arc<Engine>,
    io: Vec<Arc<IoThread>>,
    io_threads: Vec<JoinHandle<()>>,
    committers: Vec<JoinHandle<()>>,
    logs: Vec<(Arc<SlowLog>, JoinHandle<()>)>,
    housekeeper: JoinHandle<()>,
}

impl Broker {
    /// A broker with so many shards and IO threads.
    pub fn start(shards: usize, io_threads: usize) -> Self {
        RNG.with_borrow_mut(|rng| *rng = fastrand::Rng::with_seed(7));
        let stores: Vec<Arc<dyn Store>> =
            (0..shards).map(|_| Arc::new(Disk::new().open(keys::NAMES.len())) as Arc<_>).collect();
        let logs: Vec<_> = stores.iter().map(|store| Arc::new(SlowLog::new(store))).collect();
        let held = logs.iter().map(|log| Box::new(Held(Arc::clone(log))) as Box<_>);
        let storage = Storage { shards: held.zip(stores).collect(), commits: Arc::default() };
        let clock = Clock::start(TIME);
        let sizes = (io_threads, IN_MEMORY_MAX);
        let engine = Arc::new(Engine::new(settings(), sizes, storage, clock, RANDOM));
        engine.tenants.recover(TENANT);
        let read = |shard| recovery::read(&engine, &shard).expect("the store is empty");
        let contents: Vec<_> = engine.shards.iter().map(read).collect();
        opening::recover(&engine, contents);

        let context = |id| Context {
            worker: Worker { id, now: clock.now() },
            engine: Arc::clone(&engine),
            router: Router::new(RANDOM),
            departures: Departures::default(),
        };
        let commit = |shard: Arc<DurableShard>| {
            let mut committing = shard.committing(clock);
            thread::spawn(move || {
                while let Some((to_do, _)) = committing.wait() {
                    committing.act(to_do);
                }
            })
        };
        let committers = engine.shards.iter().map(commit).collect();
        let run_log = |log: Arc<SlowLog>| (Arc::clone(&log), thread::spawn(move || log.run()));
        let logs = logs.into_iter().map(run_log).collect();
        let io: Vec<_> = (0..io_threads).map(|_| Arc::new(IoThread::default())).collect();
        let run = |(id, io): (usize, &Arc<IoThread>)| {
            let (io, context) = (Arc::clone(io), context(id));
            thread::spawn(move || io.run(context))
        };
        let io_threads = io.iter().enumerate().map(run).collect();
        let mut housekeeper = Housekeeper::new(context(0));
        let agenda = housekeeper.agenda();
        let housekeeper = thread::spawn(move || while agenda.wait(housekeeper.act()) {});
        Self { engine, io, io_threads, committers, logs, housekeeper }
    }

    /// A connection on one of the IO threads.
    pub fn connect(&self, io_thread: usize) -> Client {
        Client::new(Arc::clone(&self.io[io_thread]))
    }

    /// Ends it when all is done that is to be done, in the order in which a broker ends.
    pub fn stop(self) {
        let join = |thread: JoinHandle<()>| thread.join().expect("no thread panics");
        self.io.iter().for_each(|io| io.stop());
        self.io_threads.into_iter().for_each(join);
        self.engine.agenda.close();
        join(self.housekeeper);
        self.engine.shards.iter().for_each(|shard| shard.close());
        self.committers.into_iter().for_each(join);
        for (log, thread) in self.logs {
            log.close();
            join(thread);
        }
    }
}

fn settings() -> EngineSettings {
    let of_tenant = TenantSettings {
        limits: Arc::new(Limits::default()),
        durability: Arc::new(Durability::new(TENANT, DurabilityClass::Local, &[])),
        share_strategy: ShareStrategy::default(),
    };
    EngineSettings {
        max_tenants: 1,
        settings_of: Arc::new(move |_| of_tenant.clone()),
        sys_interval: 0,
    }
}
