//! A store on disk: an ordered log with its keys in memory.
//!
//! Made for data that is written once, read once soon, and removed: queues. A commit is one frame at the end of the
//! newest *segment*, one write and one sync. The keys are in memory, in order, each with its value if that is small, or
//! with the place of its value in a segment. So a value is written to the disk once, unless it outlives most of its
//! neighbours.
//!
//! | module | content |
//! | --- | --- |
//! | `disk` | the file operations that everything is built on |
//! | `frame`, `segment`, `reader` | how commits are stored in files |
//! | `index`, `leaf` | the keys in memory |
//! | `state` | the keys, and how much of each segment is live |
//! | `engine` | commits |
//! | `tidy`, `roster`, `bits` | how disk space is freed, and why removed keys do not come back |
//! | `janitor` | the thread that tidies up |
//! | `recovery`, `commit_mark` | the start, and what is refused there |
//!
//! `docs/formats/log.md` describes the bytes.

mod bits;
mod commit_mark;
mod disk;
mod engine;
mod frame;
mod index;
mod janitor;
mod leaf;
mod reader;
mod recovery;
mod roster;
mod segment;
mod state;
mod tidy;

#[cfg(test)]
mod tests;

use crate::port::end_of_prefix;
use crate::{Batch, Damaged, Keyspace, Snapshot, Store, StoreError, Visit, private};
use commit_mark::CommitMark;
use disk::{Directory, Disk};
use engine::{Engine, Sizes};
use index::Index;
use janitor::Janitor;
use leaf::{Leaf, Value};
use recovery::Damage;
use segment::{Segment, random_mark};
use state::Segments;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// Options for opening a store.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Reserve of free disk space, in bytes. Commits that [need room](Batch::needs_room) are refused while less is
    /// free.
    pub reserve_bytes: u64,
    /// Whether to open the store with what is left although something is damaged or missing. Then all values are read
    /// too, and what is damaged is rewritten, so that the damage is not found again.
    pub accept_loss: bool,
}

/// A store in a directory. Only one may be open on a directory at a time: [`crate::DataDir`] has the lock.
pub struct LogStore {
    engine: Arc<Engine>,
    /// The janitor's thread shares the engine and is joined on drop, so the engine is dropped only after the thread has
    /// ended.
    janitor: Janitor,
}

impl LogStore {
    /// Creates an empty store in a directory that does not exist yet.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn create(dir: &Path) -> Result<(), StoreError> {
        private::create_dir(dir).map_err(|error| StoreError::io("make", dir, error))?;
        create(&open_directory(dir)?)
    }

    /// Opens a store that [`create`](Self::create) has made. Keyspaces are identified by their numbers, which must stay
    /// the same.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if something is missing or not as it was written, and no loss is accepted; then nothing
    /// is changed.
    pub fn open(
        dir: &Path,
        keyspaces: usize,
        options: &LogOptions,
    ) -> Result<LogStore, StoreError> {
        let disk = Arc::new(open_directory(dir)?);
        let engine = Arc::new(open(disk, keyspaces, options, Sizes::default())?);
        let janitor = Janitor::start(engine.clone())
            .map_err(|error| StoreError::io("start a thread for", dir, error))?;
        Ok(LogStore { engine, janitor })
    }

    /// Verifies a closed store against its checksums, without changing anything.
    pub fn inspect(dir: &Path, bad: &mut dyn FnMut(Damaged)) {
        let read = open_directory(dir)
            .and_then(|disk| recovery::read(&disk, 0, &mut Damage::report(bad)).map(drop));
        if let Err(error) = read {
            bad(Damaged::unknown(error));
        }
    }
}

fn open_directory(dir: &Path) -> Result<Directory, StoreError> {
    Directory::open(dir).map_err(|error| StoreError::io("open", dir, error))
}

fn create(disk: &dyn Disk) -> Result<(), StoreError> {
    CommitMark::create(disk, 0)?;
    Segment::create(disk, None, 1, random_mark(), 1, 0).map(drop)
}

fn open(
    disk: Arc<dyn Disk>,
    keyspaces: usize,
    options: &LogOptions,
    sizes: Sizes,
) -> Result<Engine, StoreError> {
    let mut accept = |_: Damaged| ();
    let mut damage = match options.accept_loss {
        true => Damage::report(&mut accept),
        false => Damage::refuse(),
    };
    let recovered = recovery::read(&*disk, keyspaces, &mut damage)?;
    recovered.start(disk, sizes, options.reserve_bytes)
}

impl Store for LogStore {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.engine.get(keyspace, key)
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.engine.scan(keyspace, prefix, from, visit)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let done = self.engine.commit(batch);
        if self.engine.is_untidy() {
            self.janitor.wake();
        }
        done
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(self.engine.snapshot()))
    }

    fn room(&self) -> Result<(), StoreError> {
        self.engine.room()
    }

    fn disk_bytes(&self) -> u64 {
        self.engine.state.read().tallies().values().map(|tally| tally.end).sum()
    }
}

impl Engine {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let state = self.state.read();
        let Some(entry) = state.keyspace(keyspace).get(key) else { return Ok(None) };
        match entry.value {
            Value::Held(value) => Ok(Some(value.to_vec())),
            Value::Stored { at, len, checksum } => {
                // The open file can be read even if it is deleted meanwhile.
                let segment = state.segments()[&entry.place.segment].clone();
                drop(state);
                segment.read_value(u64::from(at), len, checksum).map(Some)
            }
        }
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
        let (leaves, segments) = {
            let state = self.state.read();
            (state.keyspace(keyspace).leaves(from, end.as_deref()), state.segments().clone())
        };
        visit_leaves(&leaves, &segments, from, end.as_deref(), visit)
    }

    fn snapshot(&self) -> LogSnapshot {
        let state = self.state.read();
        LogSnapshot { keyspaces: state.keyspaces().to_vec(), segments: state.segments().clone() }
    }
}

/// The index as it was, and all segments that it refers to, which stay open.
struct LogSnapshot {
    keyspaces: Vec<Index>,
    segments: Arc<Segments>,
}

impl Snapshot for LogSnapshot {
    fn scan(&self, keyspace: Keyspace, visit: Visit<'_>) -> Result<(), StoreError> {
        let leaves = self.keyspaces[usize::from(keyspace.0)].leaves(b"", None);
        visit_leaves(&leaves, &self.segments, b"", None, visit)
    }
}

/// Visits the entries from `from` up to `end`, until `visit` breaks.
fn visit_leaves(
    leaves: &[Arc<Leaf>],
    segments: &Segments,
    from: &[u8],
    end: Option<&[u8]>,
    visit: Visit<'_>,
) -> Result<(), StoreError> {
    for (number, leaf) in leaves.iter().enumerate() {
        let first = if number == 0 { leaf.lower_bound(from) } else { 0 };
        for entry in (first..leaf.len()).map(|index| leaf.entry(index)) {
            if end.is_some_and(|end| entry.key >= end) {
                return Ok(());
            }
            let value = read(segments, entry.place.segment, &entry.value)?;
            if visit(entry.key, &value).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the value of an entry.
fn read<'a>(
    segments: &Segments,
    segment: u32,
    value: &Value<'a>,
) -> Result<Cow<'a, [u8]>, StoreError> {
    match *value {
        Value::Held(value) => Ok(Cow::Borrowed(value)),
        Value::Stored { at, len, checksum } => {
            segments[&segment].read_value(u64::from(at), len, checksum).map(Cow::Owned)
        }
    }
}
