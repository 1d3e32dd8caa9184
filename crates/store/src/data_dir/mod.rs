//! The data directory of a broker.
//!
//! ```text
//! lock           held by the process that uses the directory; has its process id
//! manifest       version of the format, number of shards, engine
//! shard-000/     a store: the files of its engine, among them `commits`
//! shard-001/     …
//! ```
//!
//! The page `docs/formats/data-directory.md` describes the rest.

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
use manifest::SHARDS_MAX;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options for opening a data directory.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Number of shards of a new directory, 1 to 64; by default the number of cores, at most 64. An existing directory keeps the
    /// number it was created with.
    pub shards: Option<usize>,
    /// Engine of a new directory. An existing directory keeps the engine it was created with.
    pub engine: Engine,
    /// Names of the keyspaces of each store; [`crate::Keyspace`] is an index into them. Names and positions must stay
    /// the same from start to start; new names are added at the end.
    pub keyspaces: &'a [&'a str],
    /// Memory for blocks read from disk, in bytes, for all shards together.
    pub cache_bytes: u64,
    /// Memory for the newest changes of each keyspace, in bytes, for all shards together. A record that is removed
    /// before this much has been written after it never reaches a table.
    pub memtable_bytes: u64,
    /// Reserve of free disk space, in bytes. Commits that [need room](crate::Batch::needs_room) are refused while less
    /// is free.
    pub reserve_bytes: u64,
    /// Number of files that an engine may keep open as a cache for reading, for all shards together. The log engine
    /// needs all of its segments open, and does not use this cache.
    pub open_files: usize,
    /// Whether to open the directory with what is left although acknowledged commits are missing.
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

/// A data directory that this process uses until the value is dropped.
pub struct DataDir {
    /// Declared before the lock, so that the stores are closed before the lock is released.
    shards: Vec<Arc<dyn Store>>,
    path: PathBuf,
    exposure: Exposure,
    _lock: Lock,
}

impl DataDir {
    /// Opens the directory. Creates it if it does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if another process uses the directory, or if it is of another version or not a data
    /// directory; [`StoreError::Corrupt`] if something is missing or not as it was written.
    pub fn open(path: &Path, options: &Options<'_>) -> Result<DataDir, StoreError> {
        let lock = prepare(path)?;
        let (lock, manifest) = match Manifest::read(path)? {
            Some(manifest) => (lock, manifest),
            None => {
                let shards = options.shards.unwrap_or_else(shards_by_cores);
                New::make(path, lock, Manifest::new(shards, options.engine)?)?.finish()?
            }
        };
        // Not earlier: until here the directory may have belonged to something else.
        let exposure = private::tighten(path);
        let shards = open_shards(path, &manifest, options)?;
        Ok(DataDir { exposure, ..DataDir::of(shards, path, lock) })
    }

    /// Makes a `DataDir` of stores that were opened in a locked directory.
    pub(crate) fn of(shards: Vec<Arc<dyn Store>>, path: &Path, lock: Lock) -> DataDir {
        DataDir { shards, path: path.to_owned(), exposure: Exposure::None, _lock: lock }
    }

    /// The access that others had to the directory when it was opened.
    pub fn exposure(&self) -> &Exposure {
        &self.exposure
    }

    /// The stores, one for each shard. A caller may keep them longer than this value, but should not: the lock is
    /// released with this value.
    pub fn shards(&self) -> &[Arc<dyn Store>] {
        &self.shards
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates the directory if it does not exist, and locks it. A directory that is used for something else is not
/// changed.
fn prepare(path: &Path) -> Result<Lock, StoreError> {
    private::create_dir_all(path).map_err(|error| StoreError::io("make", path, error))?;
    if !Lock::is_in(path) && Manifest::read(path)?.is_none() {
        manifest::check_unused(path)?;
    }
    Lock::acquire(path)
}

/// A data directory that is being created. Its manifest is written last: a directory without a manifest was never used.
pub(crate) struct New<'a> {
    path: &'a Path,
    lock: Lock,
    manifest: Manifest,
}

impl New<'_> {
    /// Creates the directory `path` with `shards` shards. `path` must not be a data directory yet.
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

    /// Opens the stores, to be filled.
    pub fn open(&self, options: &Options<'_>) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        open_shards(self.path, &self.manifest, options)
    }

    /// Writes the manifest, which makes the directory a data directory.
    pub fn finish(self) -> Result<(Lock, Manifest), StoreError> {
        self.manifest.write(self.path)?;
        Ok((self.lock, self.manifest))
    }
}

/// Opens all shards in parallel, each on a thread: opening a shard is mostly reading.
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

/// Opens one shard.
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

/// Number of shards of a new directory, if the caller does not choose it: one for each core, as far as allowed.
fn shards_by_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(SHARDS_MAX)
}
