//! The file `manifest`: format version, number of shards and engine of a data directory.
//!
//! It is text, so that a person can read it:
//!
//! ```text
//! barid data directory
//! version 1
//! shards 4
//! engine log
//! checksum 0123456789abcdef
//! ```
//!
//! The checksum covers all lines above it.

use super::engine::{Engine, has_commits};
use crate::lsm::sync_directory;
use crate::{StoreError, checksum, private};
use std::io::{ErrorKind, Write};
use std::path::Path;

const NAME: &str = "manifest";
const TITLE: &str = "barid data directory";
const VERSION: u32 = 1;

/// Maximum number of shards. Each shard has threads of its own, and most machines have fewer cores.
pub(super) const SHARDS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub shards: usize,
    pub engine: Engine,
}

impl Manifest {
    pub fn new(shards: usize, engine: Engine) -> Result<Manifest, StoreError> {
        if (1..=SHARDS_MAX).contains(&shards) {
            return Ok(Manifest { shards, engine });
        }
        Err(StoreError::Unusable(format!(
            "a data directory has 1 to {SHARDS_MAX} shards, not {shards}; choose another number"
        )))
    }

    /// Reads the manifest of a directory. Returns `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Manifest>, StoreError> {
        let path = dir.join(NAME);
        match std::fs::read(&path) {
            Ok(bytes) => Manifest::parse(&path, &bytes).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("read", &path, error)),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Manifest, StoreError> {
        let damaged = || StoreError::damaged(path, "its checksum is wrong");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        // The checksum is verified first: another version may have other lines, but ends with the
        // same kind of checksum.
        let (lines, sum) = text.rsplit_once("checksum ").ok_or_else(damaged)?;
        if sum != format!("{:016x}\n", checksum::of(lines.as_bytes())) {
            return Err(damaged());
        }
        let mut lines = lines.lines();
        if lines.next() != Some(TITLE) {
            return Err(StoreError::Unusable(format!(
                "{} is not the manifest of a data directory; give the broker another directory",
                path.display()
            )));
        }
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let version: u32 = value("version").and_then(|v| v.parse().ok()).ok_or_else(damaged)?;
        if version != VERSION {
            return Err(StoreError::Unusable(format!(
                "{} has version {version} of the format, and this broker reads version {VERSION}; use the \
                 version of the broker that wrote it",
                path.display()
            )));
        }
        let shards = value("shards").and_then(|shards| shards.parse().ok()).ok_or_else(damaged)?;
        let engine = value("engine").and_then(|engine| engine.parse().ok()).ok_or_else(damaged)?;
        Manifest::new(shards, engine)
    }

    fn encode(&self) -> String {
        let Manifest { shards, engine } = self;
        let lines = format!("{TITLE}\nversion {VERSION}\nshards {shards}\nengine {engine}\n");
        let sum = checksum::of(lines.as_bytes());
        format!("{lines}checksum {sum:016x}\n")
    }

    /// Writes the manifest atomically: after a crash it is there in whole or not at all.
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(NAME);
        let new = dir.join("manifest.new");
        private::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(self.encode().as_bytes())?;
                file.sync_all()?;
                std::fs::rename(&new, &path)
            })
            .map_err(|error| StoreError::io("write", &path, error))?;
        sync_directory(dir)
    }
}

/// Refuses a directory without a manifest that is used for something else or has lost its manifest.
///
/// Remains of an interrupted start are accepted: shards without a commit, the new manifest, the
/// lock.
pub(crate) fn check_unused(dir: &Path) -> Result<(), StoreError> {
    let fail = |error| StoreError::io("read", dir, error);
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let is_shard = name.to_str().is_some_and(|name| name.starts_with("shard-"));
        if is_shard && has_commits(&entry.path()) {
            return Err(StoreError::Corrupt(format!(
                "{} has shards and no manifest: it was lost, or a restore did not come to its end. Empty \
                 the directory, and restore a backup",
                dir.display()
            )));
        }
        if !is_shard && !["lock", "manifest.new", "lost+found"].iter().any(|&known| name == *known)
        {
            return Err(StoreError::Unusable(format!(
                "{} is not empty and not a data directory; give the broker another directory",
                dir.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest, StoreError> {
        Manifest::parse(Path::new("manifest"), text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read() {
        let manifest = Manifest { shards: 7, engine: Engine::Lsm };
        assert_eq!(parse(&manifest.encode()).unwrap(), manifest);
    }

    #[test]
    fn no_flipped_bit_passes() {
        let text = Manifest { shards: 7, engine: Engine::Lsm }.encode();
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::parse(Path::new("manifest"), &bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_refused_with_its_number() {
        let lines = format!("{TITLE}\nversion 9\nsomething else\n");
        let sum = checksum::of(lines.as_bytes());
        let error = parse(&format!("{lines}checksum {sum:016x}\n")).unwrap_err();
        assert!(matches!(error, StoreError::Unusable(what) if what.contains("version 9")));
    }
}
