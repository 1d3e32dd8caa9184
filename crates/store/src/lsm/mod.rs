//! A store on disk: an embedded log-structured merge tree ([`fjall`]).
//!
//! This module adds to the engine:
//!
//! - Every commit carries its number (`journal`), and a small file beside the database has the
//!   number that was acknowledged last (`commit_mark`). If a commit is missing at the start, for
//!   whatever reason, the store is refused instead of being opened without it.
//! - Journals and manifests are read and verified before the engine repairs anything by truncating
//!   it.
//! - A commit is refused before the disk is full (`crate::space`).
//! - After an error of the disk the engine is reopened, without commits that were not acknowledged.
//! - Disk space is freed when much was removed (`reclaim`).

mod commit_mark;
mod engine;
mod journal;
mod manifest;
mod reclaim;

use crate::port::end_of_prefix;
use crate::space::{FreeSpace, free_bytes};
use crate::{Batch, Keyspace, Snapshot, Store, StoreError, Visit, private};
use commit_mark::CommitMark;
use engine::Engine;
use parking_lot::{Mutex, RwLock};
use reclaim::Reclaimer;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct LsmOptions {
    /// Memory for blocks read from disk, in bytes.
    pub cache_bytes: u64,
    /// Memory for the newest changes of one keyspace, in bytes. A record that is removed before
    /// this much has been written after it never reaches a table, so a larger value saves work.
    pub memtable_bytes: u64,
    /// Reserve of free disk space, in bytes. Commits that [need room](Batch::needs_room) are
    /// refused while less is free.
    pub reserve_bytes: u64,
    /// Number of files that are kept open as a cache for reading.
    pub open_files: usize,
    /// Whether to open the store with what is left although acknowledged commits are missing.
    pub accept_loss: bool,
}

/// A store in a directory. Only one may be open on a directory at a time: [`crate::DataDir`] has
/// the lock.
pub struct LsmStore {
    shared: Arc<Shared>,
    /// The reclaimer's thread is ended before the engine is closed.
    reclaimer: Reclaimer,
}

struct Shared {
    dir: PathBuf,
    options: LsmOptions,
    keyspaces: Vec<String>,
    /// Lock order: this lock is taken before that of the engine.
    committer: Mutex<Committer>,
    /// Locked for reading by all calls, and for writing to reopen the engine after an error.
    engine: RwLock<Open>,
}

/// The engine, and how often it has been reopened.
struct Open {
    /// `None` if reopening failed.
    engine: Option<Engine>,
    generation: u64,
}

struct Committer {
    /// The number of the last acknowledged commit.
    number: u64,
    mark: CommitMark,
    space: FreeSpace,
    /// Whether the engine failed, so that it must be reopened before the next commit.
    failed: bool,
}

impl LsmStore {
    /// Creates an empty store in a directory that does not exist yet.
    pub fn create(dir: &Path) -> Result<(), StoreError> {
        private::create_dir(dir).map_err(|error| StoreError::io("make", dir, error))?;
        CommitMark::create(dir)?;
        sync_directory(dir)
    }

    /// Opens a store that [`create`](Self::create) has made.
    pub fn open(
        dir: &Path,
        keyspaces: &[&str],
        options: LsmOptions,
    ) -> Result<LsmStore, StoreError> {
        let (mut mark, acknowledged) = CommitMark::open(dir, options.accept_loss)?;
        let keyspaces: Vec<String> = keyspaces.iter().map(|&name| name.to_owned()).collect();
        let engine = Engine::open(dir, &keyspaces, &options, acknowledged, None)?;
        let number = engine.number()?;
        if number < acknowledged {
            // The mark is set back, so that an accepted loss is not found again.
            mark.write(number).map_err(|error| StoreError::io("write to", dir, error))?;
        }
        let space = FreeSpace::new(options.reserve_bytes);
        let counters = keyspaces.len();
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            options,
            keyspaces,
            committer: Mutex::new(Committer { number, mark, space, failed: false }),
            engine: RwLock::new(Open { engine: Some(engine), generation: 0 }),
        });
        let reclaimer = Reclaimer::start(shared.clone(), counters)?;
        Ok(LsmStore { shared, reclaimer })
    }

    /// Verifies all files of a closed store against their checksums, without changing anything.
    pub(crate) fn inspect(dir: &Path, bad: &mut dyn FnMut(StoreError)) {
        let mark = CommitMark::open(dir, false).map(|(_, acknowledged)| acknowledged);
        let db = dir.join("db");
        // A store that was never opened has no database.
        let journals = if db.exists() { journal::read(&db, None).map(Some) } else { Ok(None) };
        let tables = if db.exists() { manifest::check(&db) } else { Ok(Vec::new()) };
        match (mark, journals) {
            (Ok(acknowledged), Ok(Some(journals))) => {
                journals.check(acknowledged).unwrap_or_else(&mut *bad);
                if acknowledged > 0 {
                    journals.check_beginning().unwrap_or_else(&mut *bad);
                }
            }
            // If the two cannot be compared, the damage of each is reported separately.
            (mark, journals) => {
                mark.map(drop).unwrap_or_else(&mut *bad);
                journals.map(drop).unwrap_or_else(&mut *bad);
            }
        }
        match tables {
            Ok(tables) => {
                tables.iter().for_each(|table| table.check().unwrap_or_else(&mut *bad));
            }
            Err(error) => bad(error),
        }
    }
}

impl Shared {
    fn read<T>(
        &self,
        with: impl FnOnce(&Engine) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        with(self.engine.read().engine.as_ref().ok_or_else(|| self.closed())?)
    }

    fn closed(&self) -> StoreError {
        StoreError::io("use", &self.dir, std::io::Error::other("closed after an error of the disk"))
    }

    fn free(&self) -> Result<u64, StoreError> {
        let fail = |error| StoreError::io("ask for the free space of", &self.dir, error);
        free_bytes(&self.dir).map_err(fail)
    }

    /// [`Store::commit`], also of an empty batch, which commits a number and nothing else.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut committer = self.committer.lock();
        if batch.needs_room() {
            committer.space.ask(batch.bytes(), || self.free())?;
        }
        if committer.failed {
            self.reopen(committer.number)?;
            committer.failed = false;
        }
        let number = committer.number + 1;
        let done = self.read(|engine| engine.commit(batch, number));
        committer.failed = done.is_err();
        done?;
        committer.number = number;
        // The commit is durable already. Without the mark, only a later loss would go unnoticed,
        // until the next commit writes it.
        let _ = committer.mark.write(number);
        Ok(())
    }

    /// Closes and reopens the engine, without commits after `acknowledged`.
    fn reopen(&self, acknowledged: u64) -> Result<(), StoreError> {
        let mut open = self.engine.write();
        // The old engine must be dropped first: it holds the lock of the database.
        open.engine = None;
        open.generation += 1;
        let Shared { dir, keyspaces, options, .. } = self;
        let until = Some(acknowledged);
        open.engine = Some(Engine::open(dir, keyspaces, options, acknowledged, until)?);
        Ok(())
    }
}

impl Store for LsmStore {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.read(|engine| engine.get(keyspace, key))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let from = from.max(prefix);
        let end = end_of_prefix(prefix);
        if end.as_deref().is_some_and(|end| end <= from) {
            return Ok(());
        }
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.shared.read(|engine| engine.scan(keyspace, (Bound::Included(from), end), visit))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.commit(batch)?;
        self.reclaimer.note(batch);
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        let open = self.shared.engine.read();
        let engine = open.engine.as_ref().ok_or_else(|| self.shared.closed())?;
        Ok(Box::new(LsmSnapshot {
            shared: self.shared.clone(),
            generation: open.generation,
            snapshot: engine.snapshot(),
        }))
    }

    fn room(&self) -> Result<(), StoreError> {
        self.shared.committer.lock().space.ask(0, || self.shared.free())
    }

    fn disk_bytes(&self) -> u64 {
        self.shared.read(|engine| Ok(engine.disk_bytes())).unwrap_or(0)
    }
}

impl Drop for LsmStore {
    fn drop(&mut self) {
        self.reclaimer.stop();
        // The mark is in the page cache already, which is enough if only the process ends.
        let _ = self.shared.committer.lock().mark.sync();
    }
}

/// A snapshot of one generation of the engine. It cannot be read after the engine was reopened.
struct LsmSnapshot {
    shared: Arc<Shared>,
    generation: u64,
    snapshot: fjall::Snapshot,
}

/// Number of records that a snapshot reads before it lets others take the lock of the engine.
const AT_ONCE: usize = 1024;

impl Snapshot for LsmSnapshot {
    fn scan(&self, keyspace: Keyspace, visit: Visit<'_>) -> Result<(), StoreError> {
        let mut next = Some(Vec::new());
        while let Some(from) = next.take() {
            let open = self.shared.engine.read();
            let engine = open.engine.as_ref().filter(|_| open.generation == self.generation);
            let engine = engine.ok_or_else(|| self.shared.closed())?;
            let mut left = AT_ONCE;
            engine.scan_snapshot(&self.snapshot, keyspace, &from, &mut |key, value| {
                visit(key, value)?;
                left -= 1;
                if left > 0 {
                    return ControlFlow::Continue(());
                }
                // The least key that is greater than this one.
                next = Some([key, &[0]].concat());
                ControlFlow::Break(())
            })?;
        }
        Ok(())
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), StoreError> {
    std::fs::File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::io("sync", dir, error))
}
