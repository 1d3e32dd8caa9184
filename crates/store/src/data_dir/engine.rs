//! The engines that a data directory may have.

use crate::data_dir::Options;
use crate::log::{LogOptions, LogStore};
use crate::lsm::{LsmOptions, LsmStore};
use crate::{Damaged, Store, StoreError};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The storage engine of a data directory. It is chosen when the directory is created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// An ordered log with its keys in memory ([`crate::log`]).
    #[default]
    Log,
    /// A log-structured merge tree ([`crate::lsm`]). It needs less memory when there are more keys
    /// than fit into memory.
    Lsm,
}

impl Engine {
    /// Creates an empty store in a directory that does not exist yet.
    pub(crate) fn create(self, dir: &Path) -> Result<(), StoreError> {
        match self {
            Engine::Log => LogStore::create(dir),
            Engine::Lsm => LsmStore::create(dir),
        }
    }

    /// Opens the store of one shard, in a data directory with `shards` shards.
    pub(crate) fn open(
        self,
        dir: &Path,
        shards: usize,
        options: &Options<'_>,
    ) -> Result<Arc<dyn Store>, StoreError> {
        let &Options { reserve_bytes, accept_loss, .. } = options;
        let share = |bytes: u64| bytes / shards as u64;
        Ok(match self {
            Engine::Log => {
                let options_of_log = LogOptions { reserve_bytes, accept_loss };
                Arc::new(LogStore::open(dir, options.keyspaces.len(), &options_of_log)?)
            }
            Engine::Lsm => {
                let options_of_lsm = LsmOptions {
                    cache_bytes: share(options.cache_bytes).max(1 << 20),
                    memtable_bytes: share(options.memtable_bytes).clamp(4 << 20, 64 << 20),
                    reserve_bytes,
                    open_files: (options.open_files / shards).max(4),
                    accept_loss,
                };
                Arc::new(LsmStore::open(dir, options.keyspaces, options_of_lsm)?)
            }
        })
    }

    /// Verifies a closed store against its checksums, without changing anything.
    pub(crate) fn inspect(self, dir: &Path, bad: &mut dyn FnMut(Damaged)) {
        match self {
            Engine::Log => LogStore::inspect(dir, bad),
            Engine::Lsm => LsmStore::inspect(dir, &mut |error| bad(Damaged::unknown(error))),
        }
    }
}

/// Returns whether a store has any commits. Both engines keep the number of the last commit in the
/// same file.
pub(crate) fn has_commits(dir: &Path) -> bool {
    std::fs::read(dir.join("commits")).is_ok_and(|mark| mark.iter().take(8).any(|&byte| byte != 0))
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Log => "log",
            Engine::Lsm => "lsm",
        })
    }
}

impl FromStr for Engine {
    type Err = ();

    fn from_str(name: &str) -> Result<Engine, ()> {
        match name {
            "log" => Ok(Engine::Log),
            "lsm" => Ok(Engine::Lsm),
            _ => Err(()),
        }
    }
}
