//! A store in memory, on a disk that fails on demand.
//!
//! For tests and simulations: the same calls always have the same effects. A [`Disk`] outlives the
//! stores that are opened on it, as a real disk outlives a process.

use crate::port::end_of_prefix;
use crate::{Batch, Change, Keyspace, Snapshot, Store, StoreError, Visit};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::{io, sync::Arc};

/// A simulated disk: the records of the stores on it, and the way in which commits fail.
#[derive(Clone, Default)]
pub struct Disk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    settled: Condvar,
}

/// The way in which a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: the commit is refused, unless the batch only removes or is urgent.
    Full,
    /// An I/O error; nothing was written.
    Io,
    /// An I/O error after the batch was written: reads do not see the batch, but it is there after
    /// a crash.
    IoButWritten,
}

/// The timing of commits: when they become durable, and when they return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Commits are durable at once.
    #[default]
    AtOnce,
    /// Commits block their threads until [`Disk::settle`] makes them durable and lets them return.
    Blocked,
    /// Commits return at once, and reads see them. They become durable when [`Disk::settle`] is
    /// called. This is for a simulation on one thread, which must not act on a commit before it is
    /// durable.
    Deferred,
}

type Table = BTreeMap<Vec<u8>, Arc<[u8]>>;

#[derive(Default)]
struct State {
    /// Incremented by a crash: stores that were opened in an earlier life fail every call.
    life: u64,
    /// Shared with snapshots (copy-on-write).
    tables: Vec<Arc<Table>>,
    /// Deferred commits, the oldest first. Each entry has the values that the commit replaced,
    /// which a crash restores.
    deferred: VecDeque<Vec<Replaced>>,
    /// The last commit, if it failed although it was written: a crash puts it into effect.
    written: Option<Batch>,
    /// The number of blocked commits that wait, and the number of them that may proceed.
    waiting: usize,
    may_settle: usize,
    timing: Timing,
    fault: Option<Fault>,
}

/// The value that a key had before a change.
struct Replaced {
    keyspace: Keyspace,
    key: Vec<u8>,
    value: Option<Arc<[u8]>>,
}

impl Disk {
    /// Creates an empty disk that does not fail.
    pub fn new() -> Disk {
        Disk::default()
    }

    /// Returns a new disk with the records that a store on this one reads now. The new disk does
    /// not fail.
    pub fn copied(&self) -> Disk {
        let copy = Disk::new();
        copy.0.state.lock().tables = self.0.state.lock().tables.clone();
        copy
    }

    /// Opens a store on this disk. Several stores may be open; they see the same records.
    pub fn open(&self, keyspaces: usize) -> MemoryStore {
        let mut state = self.0.state.lock();
        let missing = keyspaces.saturating_sub(state.tables.len());
        state.tables.extend((0..missing).map(|_| Arc::default()));
        MemoryStore { disk: self.clone(), life: state.life }
    }

    /// Simulates a crash of the process: commits that are not durable are lost. Every call to a
    /// store that was opened before the crash returns an error.
    pub fn crash(&self) {
        let mut state = self.0.state.lock();
        while let Some(commit) = state.deferred.pop_back() {
            commit.into_iter().rev().for_each(|change| state.put_back(change));
        }
        if let Some(batch) = state.written.take() {
            state.apply(&batch);
        }
        state.life += 1;
        state.may_settle = 0;
        self.0.settled.notify_all();
    }

    /// Makes commits fail with `fault` from now on, or not at all. Returns the previous setting.
    pub fn fail(&self, fault: Option<Fault>) -> Option<Fault> {
        std::mem::replace(&mut self.0.state.lock().fault, fault)
    }

    /// Sets when commits become durable from now on. Commits in flight are not affected.
    pub fn set_timing(&self, timing: Timing) {
        self.0.state.lock().timing = timing;
    }

    /// The number of commits that are not durable yet.
    pub fn unsettled(&self) -> usize {
        let state = self.0.state.lock();
        state.deferred.len() + state.waiting
    }

    /// Makes the oldest `count` commits durable that are not durable yet.
    pub fn settle(&self, count: usize) {
        let mut state = self.0.state.lock();
        let deferred = count.min(state.deferred.len());
        state.deferred.drain(..deferred);
        state.may_settle += (count - deferred).min(state.waiting - state.may_settle);
        self.0.settled.notify_all();
    }
}

impl State {
    fn apply(&mut self, batch: &Batch) -> Vec<Replaced> {
        batch
            .iter()
            .map(|change| {
                let (keyspace, key, value) = match change {
                    Change::Put(keyspace, key, value) => (keyspace, key, Some(Arc::from(value))),
                    Change::Remove(keyspace, key) => (keyspace, key, None),
                };
                let table = Arc::make_mut(&mut self.tables[usize::from(keyspace.0)]);
                let before = match value {
                    Some(value) => table.insert(key.to_vec(), value),
                    None => table.remove(key),
                };
                Replaced { keyspace, key: key.to_vec(), value: before }
            })
            .collect()
    }

    fn put_back(&mut self, Replaced { keyspace, key, value }: Replaced) {
        let table = Arc::make_mut(&mut self.tables[usize::from(keyspace.0)]);
        match value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }
}

/// A store on a [`Disk`].
pub struct MemoryStore {
    disk: Disk,
    life: u64,
}

impl MemoryStore {
    /// Creates a store on a disk of its own.
    pub fn new(keyspaces: usize) -> MemoryStore {
        Disk::new().open(keyspaces)
    }

    fn tables(&self) -> Result<Vec<Arc<Table>>, StoreError> {
        let state = self.disk.0.state.lock();
        self.alive(&state).map(|()| state.tables.clone())
    }

    fn alive(&self, state: &State) -> Result<(), StoreError> {
        if state.life == self.life { Ok(()) } else { Err(failed("the process of this store died")) }
    }
}

fn failed(why: &str) -> StoreError {
    StoreError::Io { what: "cannot commit".into(), source: io::Error::other(why) }
}

impl Store for MemoryStore {
    fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let state = self.disk.0.state.lock();
        self.alive(&state)?;
        Ok(state.tables[usize::from(keyspace.0)].get(key).map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        prefix: &[u8],
        from: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let tables = self.tables()?;
        let from = from.max(prefix);
        let end = end_of_prefix(prefix);
        if end.as_deref().is_some_and(|end| end <= from) {
            return Ok(());
        }
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for (key, value) in
            tables[usize::from(keyspace.0)].range::<[u8], _>((Bound::Included(from), end))
        {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut state = self.disk.0.state.lock();
        self.alive(&state)?;
        if batch.is_empty() {
            return Ok(());
        }
        match state.fault {
            Some(Fault::Full) if batch.needs_room() => {
                return Err(StoreError::Full { free: 0, reserve: 0 });
            }
            Some(Fault::Io) => return Err(failed("a fault was asked for")),
            Some(Fault::IoButWritten) => {
                state.written = Some(batch.clone());
                return Err(failed("a fault was asked for"));
            }
            Some(Fault::Full) | None => (),
        }
        if state.timing == Timing::Blocked {
            state.waiting += 1;
            while state.may_settle == 0 && state.life == self.life {
                self.disk.0.settled.wait(&mut state);
            }
            state.waiting -= 1;
            self.alive(&state)?;
            state.may_settle -= 1;
        }
        // A failed commit that was written is older than this commit, and is undone by it.
        state.written = None;
        let replaced = state.apply(batch);
        if state.timing == Timing::Deferred {
            state.deferred.push_back(replaced);
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(MemorySnapshot(self.tables()?)))
    }

    fn room(&self) -> Result<(), StoreError> {
        match self.disk.0.state.lock().fault {
            Some(Fault::Full) => Err(StoreError::Full { free: 0, reserve: 0 }),
            _ => Ok(()),
        }
    }

    fn disk_bytes(&self) -> u64 {
        let state = self.disk.0.state.lock();
        let records = state.tables.iter().flat_map(|table| table.iter());
        records.map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

struct MemorySnapshot(Vec<Arc<Table>>);

impl Snapshot for MemorySnapshot {
    fn scan(&self, keyspace: Keyspace, visit: Visit<'_>) -> Result<(), StoreError> {
        for (key, value) in self.0[usize::from(keyspace.0)].iter() {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
