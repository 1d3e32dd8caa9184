//! The directory of a broker.
//!
//! ```text
//! lock           held by the process that uses the directory; has its process id
//! manifest       version of the format, number of shards, engine
//! shard-000/     a store: the files of its engine, among them `commits`
//! shard-001/     …
//! ```
//!
//! The page `docs/formats/data-directory.md` says the rest.

mod engine;
mod holder;
mod lock;
mod manifest;

use crate::lsm::sync_directory;
use crate::private::{self, Exposure};
use crate::{Store, StoreError};
pub use engine::Engine;
pub(crate) use lock::Lock;
pub(crate) use manifest::Manifest;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a data directory is opened.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// How many shards a new directory gets, 1 to 64; as many as there are cores, if not given. One
    /// that exists has as many as it was made with.
    pub shards: Option<usize>,
    /// The engine that a new directory gets. One that exists has the one that it was made with.
    pub engine: Engine,
    /// The names of the keyspaces of each store. [`crate::Keyspace`] is an index into them. Neither names
    /// nor places may change from start to start; new ones come at the end.
    pub keyspaces: &'a [&'a str],
    /// Memory for blocks read from disk, of all shards together.
    pub cache_bytes: u64,
    /// Memory for the newest changes of each keyspace, of all shards together. What is removed before
    /// this much has come is never written to a table.
    pub memtable_bytes: u64,
    /// Commits that put something are refused while less of the disk is free.
    pub reserve_bytes: u64,
    /// Files that an engine may keep open only to read them again soon, of all shards together. The log needs all
    /// of its segments open, and keeps no others.
    pub open_files: usize,
    /// Open although acknowledged commits are missing, with what is left.
    pub accept_loss: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            shards: None,
            engine: Engine::default(),
            keyspaces: &[],
            cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            reserve_bytes: 256 << 20,
            open_files: 256,
            accept_loss: false,
        }
    }
}

/// A data directory that is in use by this process until it is dropped.
pub struct DataDir {
    /// Before the lock: all is closed when the directory is let go.
    shards: Vec<Arc<dyn Store>>,
    path: PathBuf,
    exposure: Exposure,
    _lock: Lock,
}

impl DataDir {
    /// Opens the directory, or makes it if it does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if another process uses it, or it is of another version, or not a
    /// data directory; [`StoreError::Corrupt`] if something is missing or not as it was written.
    pub fn open(path: &Path, options: &Options<'_>) -> Result<DataDir, StoreError> {
        let lock = prepare(path)?;
        let (lock, manifest) = match Manifest::read(path)? {
            Some(manifest) => (lock, manifest),
            None => {
                let shards = options.shards.unwrap_or_else(cores);
                New::make(path, lock, Manifest::new(shards, options.engine)?)?.finish()?
            }
        };
        // Not before: until here it may have been somebody else's directory.
        let exposure = private::tighten(path);
        let shards = open_shards(path, &manifest, options)?;
        Ok(DataDir { exposure, ..DataDir::of(shards, path, lock) })
    }

    /// Stores that were opened in a directory that is locked.
    pub(crate) fn of(shards: Vec<Arc<dyn Store>>, path: &Path, lock: Lock) -> DataDir {
        DataDir { shards, path: path.to_owned(), exposure: Exposure::None, _lock: lock }
    }

    /// Who else could reach what is in it when it was opened.
    pub fn exposure(&self) -> &Exposure {
        &self.exposure
    }

    /// The stores, one for each shard. They may outlive this value, but should not: the lock does not.
    pub fn shards(&self) -> &[Arc<dyn Store>] {
        &self.shards
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the directory if it does not exist, and locks it. One that is something else is left as it is.
fn prepare(path: &Path) -> Result<Lock, StoreError> {
    private::create_dir_all(path).map_err(|error| StoreError::io("make", path, error))?;
    if !Lock::is_in(path) && Manifest::read(path)?.is_none() {
        manifest::check_unused(path)?;
    }
    Lock::acquire(path)
}

/// A data directory that is being made. Its manifest comes last: one without it was never used.
pub(crate) struct New<'a> {
    path: &'a Path,
    lock: Lock,
    manifest: Manifest,
}

impl New<'_> {
    /// Makes a directory with so many shards, which `path` must not be yet.
    pub fn prepare(path: &Path, shards: usize, engine: Engine) -> Result<New<'_>, StoreError> {
        let lock = prepare(path)?;
        if Manifest::read(path)?.is_some() {
            return Err(StoreError::Unusable(format!(
                "{} is a data directory already; give an empty one",
                path.display()
            )));
        }
        New::make(path, lock, Manifest::new(shards, engine)?)
    }

    fn make(path: &Path, lock: Lock, manifest: Manifest) -> Result<New<'_>, StoreError> {
        manifest::check_unused(path)?;
        private::tighten(path);
        for shard in 0..manifest.shards {
            let dir = shard_dir(path, shard);
            if dir.exists() {
                std::fs::remove_dir_all(&dir)
                    .map_err(|error| StoreError::io("remove", &dir, error))?;
            }
            manifest.engine.create(&dir)?;
        }
        sync_directory(path)?;
        Ok(New { path, lock, manifest })
    }

    /// The stores, to be filled.
    pub fn open(&self, options: &Options<'_>) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        open_shards(self.path, &self.manifest, options)
    }

    /// From now on it is a data directory.
    pub fn finish(self) -> Result<(Lock, Manifest), StoreError> {
        self.manifest.write(self.path)?;
        Ok((self.lock, self.manifest))
    }
}

/// All shards at once, each on a thread: most of it is reading.
pub(crate) fn open_shards(
    path: &Path,
    manifest: &Manifest,
    options: &Options<'_>,
) -> Result<Vec<Arc<dyn Store>>, StoreError> {
    let open = |shard| open_shard(path, shard, manifest, options);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..manifest.shards).map(|shard| scope.spawn(move || open(shard))).collect();
        threads.into_iter().map(|thread| thread.join().expect("opening does not panic")).collect()
    })
}

/// One of the shards.
pub(crate) fn open_shard(
    path: &Path,
    shard: usize,
    manifest: &Manifest,
    options: &Options<'_>,
) -> Result<Arc<dyn Store>, StoreError> {
    let dir = shard_dir(path, shard);
    if !dir.is_dir() {
        return Err(StoreError::damaged(&dir, "it is missing"));
    }
    manifest.engine.open(&dir, manifest.shards, options)
}

pub(crate) fn shard_dir(path: &Path, shard: usize) -> PathBuf {
    path.join(format!("shard-{shard:03}"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
