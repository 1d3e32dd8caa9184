//! The log of a broker that has its store to itself: an appended batch goes into the store at once.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use crate::{Batch, Store, StoreError};

/// A log whose batches are applied to a store by the appending thread and are kept nowhere else: it is always trimmed
/// to its end. The data directory admits one broker at a time, so there is one holder.
pub struct LocalLog {
    store: Arc<dyn Store>,
    /// Locked for reading while a batch is committed.
    commits: Arc<RwLock<()>>,
    tail: AtomicU64,
    is_sealed: AtomicBool,
    /// Whether the last batch may be found after a crash although the store does not show it.
    is_in_doubt: AtomicBool,
}

impl LocalLog {
    /// Creates a log over a store. Logs can share `commits`: whoever locks it for writing sees the stores of all of
    /// them between two commits.
    pub fn new(store: Arc<dyn Store>, commits: Arc<RwLock<()>>) -> Self {
        let (is_sealed, is_in_doubt) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { store, commits, tail: AtomicU64::new(0), is_sealed, is_in_doubt }
    }

    fn commit(&self, batch: &Batch) -> Outcome {
        // `is_sealed` is read under the lock that `seal` takes for writing.
        let _commits = self.commits.read();
        if self.is_sealed.load(Ordering::Acquire) {
            return Outcome::Fenced;
        }
        let committed = self.store.commit(batch);
        self.is_in_doubt.store(committed.is_err(), Ordering::Release);
        match committed {
            Ok(()) => Outcome::Done(Position(self.tail.fetch_add(1, Ordering::AcqRel))),
            Err(error) => Outcome::Undecided(error),
        }
    }

    fn end(&self) -> Position {
        Position(self.tail.load(Ordering::Acquire))
    }
}

impl Changelog for LocalLog {
    fn window(&self) -> usize {
        1
    }

    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>) {
        sink.on_outcome(index, self.commit(batch));
    }

    fn positions(&self) -> Result<Range<Position>, LogError> {
        Ok(self.end()..self.end())
    }

    fn read(&self, from: Position, _: VisitBatches<'_>) -> Result<(), LogError> {
        let end = self.end();
        if from < end { Err(LogError::Trimmed(end)) } else { Ok(()) }
    }

    fn trim(&self, _: Position) -> Result<(), LogError> {
        Ok(())
    }

    fn seal(&self) -> Result<(), LogError> {
        let _commits = self.commits.write();
        if self.is_in_doubt.load(Ordering::Acquire) {
            let source = io::Error::other("the last commit failed, and may have been written");
            return Err(StoreError::Io { what: "cannot end the log".into(), source }.into());
        }
        let was_sealed = self.is_sealed.swap(true, Ordering::AcqRel);
        if was_sealed { Err(LogError::Fenced) } else { Ok(()) }
    }

    fn room(&self) -> Result<(), StoreError> {
        self.store.room()
    }
}
