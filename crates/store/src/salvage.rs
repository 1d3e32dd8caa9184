//! Opens a damaged data directory with what can still be read, after copying what is damaged.

use crate::data_dir::{Engine, Lock, Manifest, Options, open_shards, shard_dir};
use crate::lsm::sync_directory;
use crate::{DataDir, StoreError};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Copies the damaged files of a data directory into the directory `into`, which is created, and opens the data
/// directory without the lost records. Returns the paths of the copies.
///
/// The data directory is not changed before all copies are durable. The files `commits` and `segments` of a damaged
/// shard are copied as well, because they are needed to read the others.
///
/// # Errors
///
/// [`StoreError::Unusable`] if another process uses the data directory, or if its engine cannot open without what is
/// damaged; [`StoreError::Corrupt`] if the manifest or a shard is missing, so that it is not known what there should
/// be.
pub fn salvage(
    path: &Path,
    options: &Options<'_>,
    into: &Path,
) -> Result<(DataDir, Vec<PathBuf>), StoreError> {
    let lock = Lock::acquire(path)?;
    let manifest = Manifest::read(path)?
        .ok_or_else(|| StoreError::damaged(&path.join("manifest"), "it is missing"))?;
    if manifest.engine != Engine::Log {
        return Err(StoreError::Unusable(format!(
            "the engine {} keeps no record apart from its damaged neighbours; restore a backup",
            manifest.engine
        )));
    }
    let mut copies = Vec::new();
    fs::create_dir_all(into).map_err(|error| StoreError::io("make", into, error))?;
    for shard in 0..manifest.shards {
        let dir = shard_dir(path, shard);
        if !dir.is_dir() {
            return Err(StoreError::damaged(&dir, "it is missing"));
        }
        let mut is_damaged = false;
        let mut files = BTreeSet::new();
        manifest.engine.inspect(&dir, &mut |damaged| {
            is_damaged = true;
            files.extend(damaged.file);
        });
        if !is_damaged {
            continue;
        }
        files.extend(["commits", "segments"].map(|name| dir.join(name)));
        let to = into.join(dir.file_name().unwrap_or(OsStr::new("shard")));
        fs::create_dir_all(&to).map_err(|error| StoreError::io("make", &to, error))?;
        for file in files.iter().filter(|file| file.exists()) {
            let copy = to.join(file.file_name().unwrap_or(OsStr::new("file")));
            copy_durably(file, &copy).map_err(|error| StoreError::io("write", &copy, error))?;
            copies.push(copy);
        }
        sync_directory(&to)?;
    }
    sync_directory(into)?;
    into.parent().map_or(Ok(()), sync_directory)?;
    let options = Options { accept_loss: true, ..options.clone() };
    let shards = open_shards(path, &manifest, &options)?;
    Ok((DataDir::of(shards, path, lock), copies))
}

fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()
}
