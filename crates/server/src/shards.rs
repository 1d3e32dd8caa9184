//! The shards of a running broker, and their threads. A shard can be closed and opened again while the others
//! serve.

use std::sync::Arc;
use std::thread::JoinHandle;

use barid_core::durable::RecoveryError;
use barid_engine::durable::{Committing, DurableShard};
use barid_engine::engine::Engine;
use barid_engine::events::Event;
use barid_engine::recovery::{self, Counts};
use barid_engine::worker::Worker;
use barid_engine::{closing, opening};
use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;
use tracing::info;

use crate::threads;

/// The threads of all shards.
pub struct Shards {
    /// The threads of each shard; `None`: the shard is closed. Locked while the shard is closed or opened.
    threads: Box<[Mutex<Option<Threads>>]>,
    /// Locked while any shard is closed or opened, after the lock on its threads: see [`opening::open`].
    one_at_a_time: Mutex<()>,
    /// The [`Worker`] number of the loader of the first shard. The loaders of the others follow.
    first_loader: usize,
}

/// The threads of an open shard.
struct Threads {
    committer: JoinHandle<()>,
    loader: JoinHandle<()>,
}

/// Why a shard could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The contents of its store cannot be read.
    #[error("cannot read shard {shard}: {source}")]
    Unreadable {
        /// The number of the shard.
        shard: u16,
        /// The cause of the error.
        source: RecoveryError,
    },
    /// Nothing can be written to its store.
    #[error("cannot write to shard {0}; see the log. The shard stays closed; try to open it again")]
    Unwritable(u16),
}

impl Shards {
    /// Creates `count` shards without threads. Their loaders get [`Worker`] numbers from `first_loader` on.
    pub fn new(count: usize, first_loader: usize) -> Self {
        let threads = (0..count).map(|_| Mutex::default()).collect();
        Self { threads, one_at_a_time: Mutex::default(), first_loader }
    }

    /// Starts the threads of a shard.
    pub fn start(&self, engine: &Engine, shard: &Arc<DurableShard>, committing: Committing) {
        *self.of(shard.index()) = Some(self.start_threads(engine, shard, committing));
    }

    fn start_threads(
        &self,
        engine: &Engine,
        shard: &Arc<DurableShard>,
        committing: Committing,
    ) -> Threads {
        let (index, clock) = (shard.index(), engine.clock);
        let worker = Worker { id: self.first_loader + usize::from(index), now: clock.now() };
        Threads {
            committer: threads::commit(index, committing),
            loader: threads::read_back(index, shard.reading(worker, clock)),
        }
    }

    /// Closes a shard. When this returns, all that was noted in it is durable. Returns false if it is closed
    /// already. Blocks while the disk is full or broken.
    pub fn close(&self, engine: &Engine, shard: u16) -> bool {
        let mut threads = self.of(shard);
        let Some(running) = threads.take() else { return false };
        {
            let _one = self.one_at_a_time.lock();
            closing::close(engine, shard);
        }
        running.join();
        info!(shard, "shard closed");
        engine.events.tell(&Event::Shard { shard, is_open: false });
        true
    }

    /// Opens a closed shard. Returns `None` if it is open already.
    ///
    /// # Errors
    /// Fails if the store of the shard cannot be read or written. The shard is closed then.
    pub fn open(&self, engine: &Engine, shard: u16) -> Result<Option<Counts>, OpenError> {
        let mut threads = self.of(shard);
        if threads.is_some() {
            return Ok(None);
        }
        let _one = self.one_at_a_time.lock();
        let tenure = opening::next_tenure(engine, shard, None);
        let contents = recovery::read(engine, &tenure)
            .map_err(|source| OpenError::Unreadable { shard, source })?;
        let counts = opening::open(engine, contents);
        let mut committing = tenure.committing(engine.clock);
        let is_written = committing.begin();
        let running = self.start_threads(engine, &tenure, committing);
        if !is_written {
            closing::close(engine, shard).end();
            running.join();
            return Err(OpenError::Unwritable(shard));
        }
        opening::serve(engine, shard);
        *threads = Some(running);
        info!(shard, sessions = counts.sessions, keys = counts.keys, "shard opened");
        engine.events.tell(&Event::Shard { shard, is_open: true });
        Ok(Some(counts))
    }

    /// Commits what is pending, and ends all threads. For the end of the process.
    pub fn end(&self, engine: &Engine) {
        // First: another thread may hold the lock of a shard that it closes, and wait for the disk.
        engine.shards.iter().for_each(|shard| shard.end());
        for shard in &self.threads {
            if let Some(running) = shard.lock().take() {
                running.join();
            }
        }
    }

    fn of(&self, shard: u16) -> MutexGuard<'_, Option<Threads>> {
        self.threads[usize::from(shard)].lock()
    }
}

impl Threads {
    fn join(self) {
        let _ = self.committer.join();
        let _ = self.loader.join();
    }
}
