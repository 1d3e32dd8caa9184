//! The logs of the shards. An appended batch is in flight until the history decides its outcome.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use barid_store::changelog::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use barid_store::{Batch, Store, StoreError};
use parking_lot::Mutex;

use crate::rules::{Rule, Rules};

/// The log of one shard. It writes batches to the store of the shard.
pub struct Log {
    store: Arc<dyn Store>,
    rules: Rules,
    window: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    on_their_way: VecDeque<Sent>,
    /// Index of the last batch that was ever appended.
    last: u64,
    done: u64,
}

struct Sent {
    index: u64,
    batch: Arc<Batch>,
    sink: Arc<dyn Sink>,
    /// The result of the write, or `None` before the write.
    written: Option<Result<(), StoreError>>,
}

/// A step that a log has done.
pub enum Done {
    /// The log has written the batch of this index, or has failed to.
    Written(u64, Arc<Batch>, bool),
    /// The log has reported whether the batch of this index is durable.
    Told(u64, bool),
}

/// The handle of a log that its shard holds.
pub struct Held(pub Arc<Log>);

impl Log {
    /// Creates a log over `store`. At most `window` batches may be in flight.
    pub fn new(store: Arc<dyn Store>, window: usize, rules: Rules) -> Self {
        Self { store, rules, window, state: Mutex::default() }
    }

    /// Whether no batch is in flight.
    pub fn is_idle(&self) -> bool {
        self.state.lock().on_their_way.is_empty()
    }

    /// Writes the oldest batch in flight, or reports its outcome if it was written before. Returns `None` if no
    /// batch is in flight.
    pub fn step(&self) -> Option<Done> {
        let mut state = self.state.lock();
        let sent = state.on_their_way.front_mut()?;
        let Some(written) = sent.written.take() else {
            let written = self.store.commit(&sent.batch);
            let done = Done::Written(sent.index, Arc::clone(&sent.batch), written.is_ok());
            sent.written = Some(written);
            return Some(done);
        };
        let Sent { index, sink, .. } = state.on_their_way.pop_front().expect("it was looked at");
        let is_done = written.is_ok() || !self.rules.hold(Rule::FailedIsNotDurable);
        let outcome = match written {
            Err(error) if !is_done => {
                for behind in &mut state.on_their_way {
                    behind.written = Some(Err(in_doubt()));
                }
                Outcome::Undecided(error)
            }
            _ => {
                state.done += 1;
                Outcome::Done(Position(state.done - 1))
            }
        };
        drop(state);
        sink.on_outcome(index, outcome);
        Some(Done::Told(index, is_done))
    }
}

impl Changelog for Held {
    fn window(&self) -> usize {
        self.0.window
    }

    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>) {
        let mut state = self.0.state.lock();
        let is_again = index <= state.last;
        state.last = index.max(state.last);
        let forgets = is_again && !self.0.rules.hold(Rule::AppendAgainWhatFailed);
        let (batch, sink) = (Arc::clone(batch), Arc::clone(sink));
        let written = forgets.then_some(Ok(()));
        state.on_their_way.push_back(Sent { index, batch, sink, written });
    }

    fn positions(&self) -> Result<Range<Position>, LogError> {
        let end = Position(self.0.state.lock().done);
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

fn in_doubt() -> StoreError {
    let source = std::io::Error::other("one before it is in doubt");
    StoreError::Io { what: "cannot append".into(), source }
}
