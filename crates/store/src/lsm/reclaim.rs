//! Frees disk space when much was removed.
//!
//! The engine drops removed records when it merges tables, and it merges when new tables come, not when records are
//! removed. So a drained backlog would stay on the disk until the next one. Therefore removals are counted here, and a
//! keyspace is rewritten when a large part of it was removed.

use super::{Engine, Shared};
use crate::{Batch, Change, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of tables below which a keyspace is not rewritten: its tables are merged when new ones come.
const TABLE_BYTES: u64 = 32 << 20;

/// Minimum number of removals before the size of a keyspace is checked.
const REMOVALS: u64 = 10_000;

/// Delay before a check, so that a queue that is being drained is rewritten once, not often.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Reclaimer {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

struct Counts {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    keyspaces: Vec<Removed>,
    stop: bool,
}

#[derive(Clone, Copy)]
struct Removed {
    /// Removals since the keyspace was last rewritten.
    count: u64,
    /// Number of removals at which the keyspace is checked next.
    threshold: u64,
}

impl Reclaimer {
    pub fn start(shared: Arc<Shared>, keyspaces: usize) -> Result<Reclaimer, StoreError> {
        let state = State {
            keyspaces: vec![Removed { count: 0, threshold: REMOVALS }; keyspaces],
            stop: false,
        };
        let counts = Arc::new(Counts { state: Mutex::new(state), changed: Condvar::new() });
        let thread = std::thread::Builder::new().name("barid-reclaim".into()).spawn({
            let counts = counts.clone();
            move || run(&shared, &counts)
        });
        let thread = thread.map_err(|error| StoreError::Io {
            what: "cannot start a thread".into(),
            source: error,
        })?;
        Ok(Reclaimer { counts, thread: Some(thread) })
    }

    /// Counts the removals of a batch.
    pub fn note(&self, batch: &Batch) {
        let mut state = self.counts.state.lock();
        let mut enough = false;
        for change in batch.iter() {
            if let Change::Remove(keyspace, _) = change {
                let removed = &mut state.keyspaces[usize::from(keyspace.0)];
                removed.count += 1;
                enough |= removed.count == removed.threshold;
            }
        }
        if enough {
            self.counts.changed.notify_one();
        }
    }

    pub fn stop(&mut self) {
        self.counts.state.lock().stop = true;
        self.counts.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, counts: &Counts) {
    let mut state = counts.state.lock();
    while !state.stop {
        let due = |removed: &Removed| removed.count >= removed.threshold;
        if !state.keyspaces.iter().any(due) {
            counts.changed.wait(&mut state);
            continue;
        }
        counts.changed.wait_for(&mut state, PAUSE);
        for keyspace in 0..state.keyspaces.len() {
            let removed = state.keyspaces[keyspace];
            if state.stop || !due(&removed) {
                continue;
            }
            let next = MutexGuard::unlocked(&mut state, || look(shared, keyspace, removed.count));
            let counted_since = state.keyspaces[keyspace].count - removed.count;
            state.keyspaces[keyspace] = match next {
                Next::At(threshold) => Removed { count: removed.count + counted_since, threshold },
                Next::After(threshold) => Removed { count: counted_since, threshold },
            };
        }
    }
}

/// The condition for the next check of a keyspace.
enum Next {
    /// Check when there are this many removals, including those counted so far.
    At(u64),
    /// Check when there are this many more removals.
    After(u64),
}

/// Rewrites the keyspace if at least half as many records were removed as are left.
fn look(shared: &Shared, keyspace: usize, count: u64) -> Next {
    let sizes = || shared.read(|engine| Ok(engine.tables(keyspace)));
    let Ok((before, records)) = sizes() else { return Next::At(count * 2) };
    if before < TABLE_BYTES {
        return Next::At(count + REMOVALS);
    }
    // The records in tables include the removals themselves (tombstones).
    if count < records / 3 {
        return Next::At((records / 3).max(count + REMOVALS));
    }
    // If this fails, the next commit notices the failure and reopens the engine.
    let done = shared
        .read(|engine| engine.compact(keyspace))
        .and_then(|()| shared.commit(&Batch::new()))
        .and_then(|()| shared.read(Engine::flush));
    match (done, sizes()) {
        (Ok(()), Ok((after, _))) if after < before / 4 * 3 => Next::After(REMOVALS),
        // The records were removed before they reached a table. The next check is put off further.
        _ => Next::After(count.saturating_mul(4)),
    }
}
