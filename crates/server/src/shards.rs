//! The shards of a broker that runs, with the threads of each: it is closed and opened again while the others serve.

use std::sync::Arc;
use std::thread::JoinHandle;

use barid_core::durable::RecoveryError;
use barid_engine::durable::{Committing, DurableShard};
use barid_engine::engine::Engine;
use barid_engine::recovery::{self, Counts};
use barid_engine::worker::Worker;
use barid_engine::{closing, opening};
use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;
use tracing::info;

use crate::threads;

/// The threads of all shards.
pub struct Shards {
    /// `None`: the shard is closed. Locked while it is closed or opened.
    threads: Box<[Mutex<Option<Threads>>]>,
    /// Locked while any shard is closed or opened, inside its own lock: see [`opening::open`].
    one_at_a_time: Mutex<()>,
    /// The number of the first loader among those who count.
    first_loader: usize,
}

/// The threads of an open shard.
struct Threads {
    committer: JoinHandle<()>,
    loader: JoinHandle<()>,
}

/// Why a shard is not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// What its store has cannot be read.
    #[error("cannot read shard {shard}: {source}")]
    Unreadable {
        /// Which shard.
        shard: u16,
        /// Why not.
        source: RecoveryError,
    },
    /// Nothing can be written to its store.
    #[error("cannot write to shard {0}; the log says why. It is closed: try again")]
    Unwritable(u16),
}

impl Shards {
    /// So many shards, none of which has threads yet. Of those who count, their loaders begin with this number.
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

    /// Closes a shard: what was noted in it is durable when this returns. False: it is closed already. Waits for the disk,
    /// as long as that is full or broken.
    pub fn close(&self, engine: &Engine, shard: u16) -> bool {
        let mut threads = self.of(shard);
        let Some(running) = threads.take() else { return false };
        {
            let _one = self.one_at_a_time.lock();
            closing::close(engine, shard);
        }
        running.join();
        info!(shard, "closed");
        true
    }

    /// Opens a shard that was closed. `None`: it is open already.
    ///
    /// # Errors
    /// Its store cannot be read or written. The shard is closed then.
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
        info!(shard, sessions = counts.sessions, keys = counts.keys, "opened");
        Ok(Some(counts))
    }

    /// Writes what there is to write, and ends all threads. The process is about to end.
    pub fn end(&self, engine: &Engine) {
        // One that is being closed may wait for its disk.
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
