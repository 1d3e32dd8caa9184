//! A store on disk: an embedded log-structured merge tree ([`fjall`]).
//!
//! What is added to the engine here:
//!
//! - Every commit carries its number (`journal`), and a small file beside the database says which
//!   number was acknowledged last (`commit_mark`). If a commit is missing at the start, whatever
//!   the reason, the store is refused instead of being opened without it.
//! - Journals and manifests are read and checked before the engine repairs anything by cutting it.
//! - A commit is refused before the disk is full (`crate::space`).
//! - After an error of the disk the engine is opened again, without what was not acknowledged.
//! - Disk space comes back when much was removed (`reclaim`).

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

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct LsmOptions {
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// Memory for the newest changes of one keyspace. What is removed before this much has come is
    /// never written to a table: the larger, the less work.
    pub memtable_bytes: u64,
    /// Commits that put are refused while less of the disk is free.
    pub reserve_bytes: u64,
    /// Files that are kept open to be read again.
    pub open_files: usize,
    /// Open although acknowledged commits are missing, with what is left.
    pub accept_loss: bool,
}

/// A store in a directory. One at a time: [`crate::DataDir`] has the lock.
pub struct LsmStore {
    shared: Arc<Shared>,
    /// Ends its thread before the engine is closed.
    reclaimer: Reclaimer,
}

struct Shared {
    dir: PathBuf,
    options: LsmOptions,
    keyspaces: Vec<String>,
    /// Locked before the engine.
    committer: Mutex<Committer>,
    /// Read by all calls. Written to reopen the engine after an error.
    engine: RwLock<Open>,
}

/// The engine, and how often it was opened.
struct Open {
    /// `None` if it could not be opened again.
    engine: Option<Engine>,
    generation: u64,
}

struct Committer {
    /// The number of the last commit that was acknowledged.
    number: u64,
    mark: CommitMark,
    space: FreeSpace,
    /// The engine failed, and has to be opened again before the next commit.
    failed: bool,
}

impl LsmStore {
    /// Makes an empty store in a directory that does not exist yet.
    pub fn create(dir: &Path) -> Result<(), StoreError> {
        private::create_dir(dir).map_err(|error| StoreError::io("make", dir, error))?;
        CommitMark::create(dir)?;
        sync_directory(dir)
    }

    /// Opens the store that [`create`](Self::create) has made.
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
            // A loss that was accepted is not found again.
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

    /// Compares all files of a closed store with their checksums, and changes nothing.
    pub(crate) fn inspect(dir: &Path, bad: &mut dyn FnMut(StoreError)) {
        let mark = CommitMark::open(dir, false).map(|(_, acknowledged)| acknowledged);
        let db = dir.join("db");
        // One that was never opened has none.
        let journals = if db.exists() { journal::read(&db, None).map(Some) } else { Ok(None) };
        let tables = if db.exists() { manifest::check(&db) } else { Ok(Vec::new()) };
        match (mark, journals) {
            (Ok(acknowledged), Ok(Some(journals))) => {
                journals.check(acknowledged).unwrap_or_else(&mut *bad);
                if acknowledged > 0 {
                    journals.check_beginning().unwrap_or_else(&mut *bad);
                }
            }
            // What cannot be compared is told, each for itself.
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

    /// [`Store::commit`], of an empty batch, too: that is a number and nothing else.
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
        // Durable already. Without the mark only a loss would go unnoticed, and the next one comes.
        let _ = committer.mark.write(number);
        Ok(())
    }

    /// Closes the engine and opens it again, without commits after `acknowledged`.
    fn reopen(&self, acknowledged: u64) -> Result<(), StoreError> {
        let mut open = self.engine.write();
        // The old engine has to be gone first: it holds the lock of the database.
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
        // What it says is in the page cache already, which is enough if only the process ends.
        let _ = self.shared.committer.lock().mark.sync();
    }
}

/// Belongs to the engine as it was opened when the snapshot was taken.
struct LsmSnapshot {
    shared: Arc<Shared>,
    generation: u64,
    snapshot: fjall::Snapshot,
}

/// How many records a snapshot reads before it lets others change the engine.
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
                // The least key behind this one.
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
