//! The logs of the shards: what is appended is on its way until the history says what becomes of it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use barid_store::changelog::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use barid_store::{Batch, Store, StoreError};
use parking_lot::Mutex;

use crate::rules::{Rule, Rules};

/// The log of one shard. What is written is in its store.
pub struct Log {
    store: Arc<dyn Store>,
    rules: Rules,
    window: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    on_their_way: VecDeque<Sent>,
    /// The last batch that was ever appended.
    last: u64,
    done: u64,
}

struct Sent {
    index: u64,
    batch: Arc<Batch>,
    sink: Arc<dyn Sink>,
    /// It was written, or was not.
    written: Option<Result<(), StoreError>>,
}

/// What a log has done.
pub enum Done {
    /// It has written the batch of this index, or failed.
    Written(u64, Arc<Batch>, bool),
    /// It has told whether the batch of this index is durable.
    Told(u64, bool),
}

/// The log, as its shard has it.
pub struct Held(pub Arc<Log>);

impl Log {
    /// Over a store; so many batches may be on their way.
    pub fn new(store: Arc<dyn Store>, window: usize, rules: Rules) -> Self {
        Self { store, rules, window, state: Mutex::default() }
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.state.lock().on_their_way.is_empty()
    }

    /// Writes the batch that was appended first, or tells what has become of it. `None`: there is none.
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
