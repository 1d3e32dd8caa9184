//! The engine with threads whose order a scheduler decides.
//!
//! IO threads, committers and logs work as in a broker. But at each lock, condition variable and atomic of the
//! engine that threads share, the scheduler may switch to another thread. It tries many orders. It reports a
//! thread that waits forever as a deadlock, so lost wake-ups are found, too.

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
use barid_engine::context::Context;
use barid_engine::departures::Departures;
use barid_engine::durability::{Durability, DurabilityClass};
use barid_engine::durable::{DurableShard, Reading, Storage};
use barid_engine::engine::{Engine, EngineSettings};
use barid_engine::housekeeping::Housekeeper;
use barid_engine::limits::{Limits, ShareStrategy};
use barid_engine::random::Random;
use barid_engine::router::Router;
use barid_engine::worker::Worker;
use barid_engine::{closing, opening, recovery};
use barid_store::Store;
use barid_store::memory::Disk;
use shuttle::sync::Mutex;
use shuttle::thread::{self, JoinHandle};

pub use client::{Client, Heard};
use io::IoThread;
use log::{Held, SlowLog};

/// The only tenant.
const TENANT: &str = "default";

/// Maximum size of the waiting messages in memory, in bytes: no limit.
const IN_MEMORY_MAX: usize = usize::MAX;

thread_local! {
    /// All threads of an execution run on the same thread of the operating system, so they share these numbers.
    static RNG: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock that stands still.
const TIME: TimeSource = TimeSource { ticks: || *EPOCH, unix: || Duration::from_secs(1_000) };

/// Random numbers, the same in each execution.
const RANDOM: Random = Random(|bytes| RNG.with_borrow_mut(|rng| rng.fill(bytes)));

/// A broker with its threads.
pub struct Broker {
    engine: Arc<Engine>,
    io: Vec<Arc<IoThread>>,
    io_threads: Vec<JoinHandle<()>>,
    shards: Vec<Mutex<Option<Running>>>,
    housekeeper: JoinHandle<()>,
}

/// The threads of an open shard.
struct Running {
    committer: JoinHandle<()>,
    log: Arc<SlowLog>,
    log_thread: JoinHandle<()>,
    reading: Reading,
}

impl Running {
    fn start(shard: &Arc<DurableShard>, clock: Clock, log: Arc<SlowLog>) -> Self {
        let mut committing = shard.committing(clock);
        let committer = thread::spawn(move || {
            while let Some((to_do, _)) = committing.wait() {
                committing.act(to_do);
            }
        });
        let its_log = Arc::clone(&log);
        let log_thread = thread::spawn(move || its_log.run());
        let reading = shard.reading(Worker { id: 0, now: clock.now() }, clock);
        Self { committer, log, log_thread, reading }
    }

    /// Waits until the committer and the log have written everything and have ended.
    fn join(self) {
        self.committer.join().expect("no thread panics");
        self.log.close();
        self.log_thread.join().expect("no thread panics");
    }
}

impl Broker {
    /// Starts a broker with this many shards and IO threads.
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
        let shards = engine.shards.iter().zip(logs);
        let run = |(shard, log): (Arc<DurableShard>, _)| Running::start(&shard, clock, log);
        let shards = shards.map(run).map(Some).map(Mutex::new).collect();

        let context = |id| Context {
            worker: Worker { id, now: clock.now() },
            engine: Arc::clone(&engine),
            router: Router::new(RANDOM),
            departures: Departures::default(),
        };
        let io: Vec<_> = (0..io_threads).map(|_| Arc::new(IoThread::default())).collect();
        let run = |(id, io): (usize, &Arc<IoThread>)| {
            let (io, context) = (Arc::clone(io), context(id));
            thread::spawn(move || io.run(context))
        };
        let io_threads = io.iter().enumerate().map(run).collect();
        let mut housekeeper = Housekeeper::new(context(0));
        let agenda = housekeeper.agenda();
        let housekeeper = thread::spawn(move || while agenda.wait(housekeeper.act()) {});
        Self { engine, io, io_threads, shards, housekeeper }
    }

    /// Returns the shard to which the session of a client belongs.
    pub fn shard_of(&self, client_id: &str) -> u16 {
        self.engine.shards.of(TENANT, client_id).index()
    }

    /// Closes a shard, and opens it again.
    pub fn reopen(&self, shard: u16) {
        let mut running = self.shards[usize::from(shard)].lock().unwrap();
        let closed = closing::close(&self.engine, shard);
        running.take().expect("it is open").join();
        let log = Arc::new(SlowLog::new(closed.store()));
        let held = Box::new(Held(Arc::clone(&log)));
        let tenure = opening::next_tenure(&self.engine, shard, Some(held));
        let contents = recovery::read(&self.engine, &tenure).expect("memory does not fail");
        opening::open(&self.engine, contents);
        let noted = tenure.last_change();
        *running = Some(Running::start(&tenure, self.engine.clock, log));
        drop(running);
        while !tenure.is_durable(noted) {
            thread::yield_now();
        }
        opening::serve(&self.engine, shard);
    }

    /// Creates a connection on an IO thread.
    pub fn connect(&self, io_thread: usize) -> Client {
        Client::new(Arc::clone(&self.io[io_thread]))
    }

    /// Reads the requested messages back from the stores, on the calling thread. There are no loader threads,
    /// because they wait in a way that the scheduler does not see.
    pub fn load(&self) {
        for shard in &self.shards {
            let mut running = shard.lock().unwrap();
            let reading = &mut running.as_mut().expect("it is open").reading;
            while let Some(mut wanted) = reading.poll() {
                assert_eq!(reading.read(&mut *wanted), None, "memory does not fail");
            }
        }
    }

    /// Stops the broker after all pending work is done. Threads end in the same order as in a broker.
    pub fn stop(self) {
        let join = |thread: JoinHandle<()>| thread.join().expect("no thread panics");
        self.io.iter().for_each(|io| io.stop());
        self.io_threads.into_iter().for_each(join);
        self.engine.agenda.close();
        join(self.housekeeper);
        self.engine.shards.iter().for_each(|shard| shard.close());
        let running = self.shards.into_iter().filter_map(|shard| shard.into_inner().unwrap());
        running.for_each(Running::join);
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
