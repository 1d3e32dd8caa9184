//! Verification: reads all of a data directory, and reports what is wrong.

use crate::data_dir::{Engine, Lock, Manifest, Options, open_shard, shard_dir};
use crate::{Damaged, Keyspace, LostRecord, Store, StoreError};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

/// The result of verifying a data directory.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of shards of the directory.
    pub shards: usize,
    /// Contents of each keyspace, in the order of [`Options::keyspaces`], summed over all shards.
    pub keyspaces: Vec<Contents>,
    /// The findings, one sentence for each. Empty if nothing is wrong.
    pub findings: Vec<String>,
    /// Number of findings that are not in `findings`, which has at most a thousand.
    pub more_findings: u64,
    /// The losses caused by the damage, as far as they are known. At most a thousand damaged places.
    pub losses: Vec<Loss>,
    /// Whether [`salvage`](crate::salvage()) can open the directory without what is damaged.
    pub can_be_salvaged: bool,
    /// Number of shards whose records were read. Shards with damaged files are not read.
    pub shards_read: usize,
}

/// The loss caused by one damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The number of the shard.
    pub shard: usize,
    /// The damaged file, if it exists.
    pub file: Option<PathBuf>,
    /// The byte range of the file that cannot be used.
    pub bytes: Range<u64>,
    /// See [`Damaged::records`]; at most a thousand.
    pub records: Vec<LostRecord>,
    /// See [`Damaged::is_all`].
    pub is_all: bool,
}

/// The size of a keyspace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The name of the keyspace.
    pub name: String,
    /// Number of records that were read.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Callback that checks a record: its shard, keyspace, key and value. Returns what is wrong with the record as an
/// error.
pub type Check<'a> = &'a mut dyn FnMut(usize, Keyspace, &[u8], &[u8]) -> Result<(), String>;

/// Callback that is called from time to time with the records and bytes that were read or written so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

const FINDINGS_MAX: usize = 1000;

/// Maximum of lost records that are kept for one damaged place.
const RECORDS_MAX: usize = 1000;

/// Number of records between two calls of a [`Progress`].
pub(crate) const PROGRESS_EVERY: u64 = 4096;

impl Report {
    fn add(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more_findings += 1;
        }
    }

    fn add_damaged(&mut self, shard: usize, damaged: Damaged) {
        let Damaged { error, file, bytes, mut records, mut is_all } = damaged;
        self.add(error.finding());
        if self.losses.len() < FINDINGS_MAX {
            is_all &= records.len() <= RECORDS_MAX;
            records.truncate(RECORDS_MAX);
            self.losses.push(Loss { shard, file, bytes, records, is_all });
        }
    }
}

/// Reads all records of all shards of the data directory at `path`. The checksums of files are verified first. A shard
/// with a wrong checksum is not opened, so that nothing is repaired or lost.
///
/// # Errors
///
/// If another process uses the directory, or if it is not a data directory. Damage is not an error; the report lists
/// it.
pub fn verify(
    path: &Path,
    options: &Options<'_>,
    check: Check<'_>,
    progress: Progress<'_>,
) -> Result<Report, StoreError> {
    let is_there = path.join("manifest").exists() || shard_dir(path, 0).exists();
    if !is_there {
        let what = format!("{} is not a data directory; name the one of a broker", path.display());
        return Err(StoreError::Unusable(what));
    }
    let _lock = Lock::acquire(path)?;
    let contents = |name: &&str| Contents { name: (*name).to_owned(), ..Contents::default() };
    let mut report =
        Report { keyspaces: options.keyspaces.iter().map(contents).collect(), ..Report::default() };
    let manifest = match Manifest::read(path) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            report.add(format!("{} is missing", path.join("manifest").display()));
            return Ok(report);
        }
        Err(error @ StoreError::Corrupt(_)) => {
            report.add(error.finding());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.shards = manifest.shards;
    report.can_be_salvaged = manifest.engine == Engine::Log
        && (0..manifest.shards).all(|shard| shard_dir(path, shard).is_dir());
    for shard in 0..report.shards {
        let before = report.findings.len();
        let dir = shard_dir(path, shard);
        manifest.engine.inspect(&dir, &mut |damaged| report.add_damaged(shard, damaged));
        if report.findings.len() > before {
            continue;
        }
        match open_shard(path, shard, &manifest, options) {
            Ok(store) => {
                read(&*store, shard, &mut report, check, progress);
                report.shards_read += 1;
            }
            Err(error) => report.add(error.finding()),
        }
    }
    Ok(report)
}

fn read(
    store: &dyn Store,
    shard: usize,
    report: &mut Report,
    check: Check<'_>,
    progress: Progress<'_>,
) {
    for index in 0..report.keyspaces.len() {
        let keyspace = Keyspace(u8::try_from(index).expect("there are 256 keyspaces at most"));
        let mut visit = |key: &[u8], value: &[u8]| {
            let contents = &mut report.keyspaces[index];
            contents.records += 1;
            contents.bytes += (key.len() + value.len()) as u64;
            if let Err(what) = check(shard, keyspace, key, value) {
                let name = &report.keyspaces[index].name;
                report.add(format!("shard {shard}, {name}, key {}: {what}", hex(key)));
            }
            let records = report.keyspaces.iter().map(|contents| contents.records).sum::<u64>();
            if records.is_multiple_of(PROGRESS_EVERY) {
                progress(records, report.keyspaces.iter().map(|contents| contents.bytes).sum());
            }
            ControlFlow::Continue(())
        };
        if let Err(error) = store.scan(keyspace, b"", b"", &mut visit) {
            let name = &report.keyspaces[index].name;
            report.add(format!("shard {shard}, {name}: {}", error.finding()));
        }
    }
}

/// Formats the first bytes of a key in hexadecimal.
fn hex(key: &[u8]) -> String {
    let more = if key.len() > 64 { "…" } else { "" };
    key.iter().take(64).map(|byte| format!("{byte:02x}")).chain([more.to_owned()]).collect()
}
