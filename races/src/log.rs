//! A log that writes batches, and reports their outcome, on a thread of its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use barid_store::changelog::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use barid_store::{Batch, Store, StoreError};
use shuttle::sync::{Condvar, Mutex};

/// Maximum number of batches in flight.
const WINDOW: usize = 2;

/// The log of one shard.
pub struct SlowLog {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    on_their_way: VecDeque<(u64, Arc<Batch>, Arc<dyn Sink>)>,
    done: u64,
    is_closed: bool,
}

impl SlowLog {
    pub fn new(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Closes the log: its thread ends after it has written all appended batches. Called after the committer
    /// has ended.
    pub fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
        self.changed.notify_all();
    }

    /// Writes appended batches, and reports that they are durable, until the log is closed.
    pub fn run(&self) {
        loop {
            let mut state = self.state.lock().unwrap();
            let (index, batch, sink) = loop {
                if let Some(first) = state.on_their_way.pop_front() {
                    break first;
                }
                if state.is_closed {
                    return;
                }
                state = self.changed.wait(state).unwrap();
            };
            state.done += 1;
            let position = Position(state.done - 1);
            drop(state);
            self.store.commit(&batch).expect("memory does not fail");
            sink.on_outcome(index, Outcome::Done(position));
        }
    }
}

/// The handle of a log that its shard holds.
pub struct Held(pub Arc<SlowLog>);

impl Changelog for Held {
    fn window(&self) -> usize {
        WINDOW
    }

    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>) {
        let (batch, sink) = (Arc::clone(batch), Arc::clone(sink));
        self.0.state.lock().unwrap().on_their_way.push_back((index, batch, sink));
        self.0.changed.notify_all();
    }

    fn positions(&self) -> Result<Range<Position>, LogError> {
        let end = Position(self.0.state.lock().unwrap().done);
        Ok(end..end)
    }

    fn read(&self, _: Position, _: VisitBatches<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn trim(&self, _: Position) -> Result<(), LogError> {
        Ok(())
    }

    fn seal(&self) -> Result<(), LogError> {
        Ok(())
    }

    fn room(&self) -> Result<(), StoreError> {
        self.0.store.room()
    }
}
