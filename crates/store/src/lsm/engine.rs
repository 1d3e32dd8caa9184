//! The fjall database of a store, from opening to closing.

use super::{LsmOptions, journal, manifest};
use crate::{Batch, Change, Keyspace, StoreError, Visit};
use fjall::config::CompressionPolicy;
use fjall::{Database, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable};
use std::fs;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keyspace of the number of the last commit, which is its only record. The name has a character that the caller's
/// names do not have.
const COMMITS: &str = "#commits";

/// Maximum bytes of sealed journals. A journal is sealed at 64 MB, and kept until everything in it is in tables. Above
/// this limit, keyspaces that change little are written to tables so that the oldest journal can be deleted.
const JOURNAL_BYTES: u64 = 128 << 20;

pub(super) struct Engine {
    dir: PathBuf,
    db: Database,
    keyspaces: Vec<fjall::Keyspace>,
    commits: fjall::Keyspace,
}

impl Engine {
    /// Opens the database in `dir`, or creates it. Fails if a commit up to `acknowledged` is missing, unless a loss is
    /// accepted. Commits after `until`, if given, are cut off.
    pub fn open(
        dir: &Path,
        keyspaces: &[String],
        options: &LsmOptions,
        acknowledged: u64,
        until: Option<u64>,
    ) -> Result<Engine, StoreError> {
        let dir = dir.join("db");
        if acknowledged == 0 {
            remove_half_made(&dir)?;
        }
        if dir.exists() {
            let journals = journal::read(&dir, until)?;
            if !options.accept_loss {
                journals.check(acknowledged)?;
            }
            manifest::check(&dir)?;
            journals.cut()?;
        }
        let fail = |error| explain(&dir, error);
        let db = Database::builder(&dir)
            .cache_size(options.cache_bytes)
            .max_cached_files(Some(options.open_files))
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            .worker_threads(1)
            .open()
            .map_err(fail)?;
        let open = |name: &str| db.keyspace(name, || keyspace_options(options)).map_err(fail);
        let commits = open(COMMITS)?;
        let keyspaces = keyspaces.iter().map(|name| open(name)).collect::<Result<_, _>>()?;
        let engine = Engine { dir, db, keyspaces, commits };
        let number = engine.number()?;
        if options.accept_loss {
            engine.flush()?;
        } else if number < acknowledged {
            let what =
                format!("commits after {number} and before {} are missing", acknowledged + 1);
            return Err(StoreError::damaged(&engine.dir, &what));
        }
        Ok(engine)
    }

    /// Writes everything in journals to tables. A journal that is needed for nothing else is deleted, even one with a
    /// gap, and so are tables that were replaced before.
    pub fn flush(&self) -> Result<(), StoreError> {
        let fail = |error| explain(&self.dir, error);
        let all = || self.keyspaces.iter().chain([&self.commits]);
        for keyspace in all() {
            keyspace.rotate_memtable().map_err(fail)?;
        }
        while all().any(|keyspace| keyspace.sealed_memtable_count() > 0) {
            // Fails if the engine's thread has failed; otherwise this loop would wait forever.
            self.db.persist(PersistMode::Buffer).map_err(fail)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the number of the last commit in the database; 0 before the first.
    pub fn number(&self) -> Result<u64, StoreError> {
        let record =
            self.commits.get(journal::NUMBER_KEY).map_err(|error| explain(&self.dir, error))?;
        match record {
            None => Ok(0),
            Some(record) => journal::number(&record).ok_or_else(|| {
                StoreError::damaged(&self.dir, "the number of the last commit is not one")
            }),
        }
    }

    pub fn commit(&self, batch: &Batch, number: u64) -> Result<(), StoreError> {
        let mut changes = OwnedWriteBatch::with_capacity(self.db.clone(), batch.len() + 1)
            .durability(Some(PersistMode::SyncData));
        for change in batch.iter() {
            match change {
                Change::Put(keyspace, key, value) => {
                    changes.insert(self.keyspace(keyspace), key, value)
                }
                Change::Remove(keyspace, key) => changes.remove(self.keyspace(keyspace), key),
            }
        }
        // The number is the last item, where the reader of the journal looks for it.
        let record = journal::number_record(number, self.db.seqno());
        changes.insert(&self.commits, journal::NUMBER_KEY, record);
        changes.commit().map_err(|error| explain(&self.dir, error))
    }

    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.keyspace(keyspace).get(key).map_err(|error| explain(&self.dir, error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    pub fn scan<'a>(
        &self,
        keyspace: Keyspace,
        range: impl RangeBounds<&'a [u8]>,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.visit(self.keyspace(keyspace).range(range), visit)
    }

    pub fn scan_snapshot(
        &self,
        snapshot: &fjall::Snapshot,
        keyspace: Keyspace,
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let range = (Bound::Included(from), Bound::Unbounded);
        self.visit(snapshot.range::<&[u8], _>(self.keyspace(keyspace), range), visit)
    }

    fn visit(&self, records: fjall::Iter, visit: Visit<'_>) -> Result<(), StoreError> {
        for record in records {
            let (key, value) = record.into_inner().map_err(|error| explain(&self.dir, error))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub fn snapshot(&self) -> fjall::Snapshot {
        self.db.snapshot()
    }

    pub fn disk_bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }

    /// Returns the bytes of a keyspace's tables and the number of records in them, including removals.
    pub fn tables(&self, keyspace: usize) -> (u64, u64) {
        let keyspace = &self.keyspaces[keyspace];
        (keyspace.disk_space(), keyspace.approximate_len() as u64)
    }

    /// Rewrites a keyspace without what was removed. Its old tables are deleted by the next [`flush`](Self::flush) that
    /// has something to write.
    pub fn compact(&self, keyspace: usize) -> Result<(), StoreError> {
        self.flush()?;
        self.keyspaces[keyspace].major_compact().map_err(|error| explain(&self.dir, error))
    }

    fn keyspace(&self, keyspace: Keyspace) -> &fjall::Keyspace {
        &self.keyspaces[usize::from(keyspace.0)]
    }
}

/// Removes a database whose creation was interrupted. The engine creates it with a non-empty file `version` as the last
/// step; without that file the database has no commits.
fn remove_half_made(dir: &Path) -> Result<(), StoreError> {
    let made = fs::metadata(dir.join("version")).is_ok_and(|version| version.len() > 0);
    if made || !dir.exists() {
        return Ok(());
    }
    fs::remove_dir_all(dir).map_err(|error| StoreError::io("remove", dir, error))
}

/// Returns the settings of a keyspace.
///
/// No compression: payloads are small, or compressed by those who care, and compression costs more than the disk space
/// that it saves. No separation of keys and values: the space of removed values was freed too late.
fn keyspace_options(options: &LsmOptions) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .manual_journal_persist(true)
        .max_memtable_size(options.memtable_bytes)
        .data_block_compression_policy(CompressionPolicy::disabled())
}

/// Translates an error of the engine into one for the operator of the broker.
fn explain(dir: &Path, error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            StoreError::io("use", dir, error)
        }
        fjall::Error::Poisoned => {
            let before = std::io::Error::other("it failed before, and is opened again");
            StoreError::io("use", dir, before)
        }
        fjall::Error::Locked => StoreError::Unusable(format!(
            "{} is used by another process; end that one, or use another directory",
            dir.display()
        )),
        fjall::Error::InvalidVersion(_) => StoreError::Unusable(format!(
            "{} is a database of another version; use the version of the broker that wrote it",
            dir.display()
        )),
        error => StoreError::damaged(dir, &format!("{error:?}")),
    }
}
