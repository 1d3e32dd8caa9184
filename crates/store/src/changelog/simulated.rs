//! A log in memory, for tests and simulations. Batches are in flight until a test decides their fate, and whoever opens
//! the log fences its earlier holders.

use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use crate::{Batch, StoreError};

/// A simulated log, which outlives its holders, however they end. Cheap to clone.
#[derive(Clone, Default)]
pub struct SimulatedLog(Arc<Mutex<State>>);

/// The fate of the oldest batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The batch lands, and its holder is told.
    Land,
    /// The batch lands, and its holder is told that it is in doubt.
    LandUnheard,
    /// The batch does not land, and its holder is told that it is in doubt.
    Lose,
    /// The holder is told that the batch is in doubt. The batch lands later, when [`SimulatedLog::land_late`] is
    /// called, if its holder still has the log.
    Delay,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    /// The position of the first of the batches.
    begin: u64,
    /// The number of the holder that opened the log last; 0 if nobody holds it.
    holder: u64,
    opened: u64,
    /// The index of the last batch of the present holder that has landed.
    landed: u64,
    on_their_way: VecDeque<Sent>,
    delayed: Vec<(u64, u64, Arc<Batch>)>,
}

struct Sent {
    /// A batch before it is in doubt.
    is_doomed: bool,
    holder: u64,
    index: u64,
    batch: Arc<Batch>,
    sink: Arc<dyn Sink>,
}

/// The log, as one holder sees it.
pub struct SimulatedHolder {
    log: SimulatedLog,
    number: u64,
    window: usize,
}

impl SimulatedLog {
    /// Opens the log: from now on no batch of an earlier holder lands.
    pub fn open(&self, window: usize) -> SimulatedHolder {
        let mut state = self.0.lock();
        state.opened += 1;
        state.holder = state.opened;
        state.landed = 0;
        SimulatedHolder { log: self.clone(), number: state.holder, window }
    }

    /// Returns the log for a reader that does not become its holder.
    pub fn reader(&self) -> impl Changelog {
        SimulatedHolder { log: self.clone(), number: u64::MAX, window: 1 }
    }

    /// Decides the fate of the oldest batch in flight. After a batch in doubt, the batches behind it are in doubt as
    /// well, whatever `fate` says. Returns false if no batch is in flight.
    pub fn decide(&self, fate: Fate) -> bool {
        let mut state = self.0.lock();
        let Some(sent) = state.on_their_way.pop_front() else { return false };
        let (holder, index, batch) = (sent.holder, sent.index, sent.batch);
        let told = if state.holder != holder {
            Outcome::Fenced
        } else {
            match fate {
                _ if sent.is_doomed => doubt(),
                Fate::Land => Outcome::Done(state.land(index, &batch)),
                Fate::LandUnheard => {
                    state.land(index, &batch);
                    doubt()
                }
                Fate::Lose => doubt(),
                Fate::Delay => {
                    state.delayed.push((holder, index, batch));
                    doubt()
                }
            }
        };
        if let Outcome::Undecided(_) = told {
            let behind = state.on_their_way.iter_mut().filter(|other| other.holder == holder);
            behind.for_each(|other| other.is_doomed = true);
        }
        drop(state);
        sent.sink.on_outcome(index, told);
        true
    }

    /// Lands the delayed batches whose holder still has the log.
    pub fn land_late(&self) {
        let mut state = self.0.lock();
        for (holder, index, batch) in std::mem::take(&mut state.delayed) {
            if state.holder == holder {
                state.land(index, &batch);
            }
        }
    }

    /// Forgets the batches in flight, as when the holder dies.
    pub fn forget(&self) {
        self.0.lock().on_their_way.clear();
    }

    /// The number of batches in flight.
    pub fn on_their_way(&self) -> usize {
        self.0.lock().on_their_way.len()
    }
}

impl State {
    /// Adds a batch of the present holder, unless it has landed before. Returns its position.
    fn land(&mut self, index: u64, batch: &Arc<Batch>) -> Position {
        assert!(index <= self.landed + 1, "after doubt the holder goes on with what is in doubt");
        if index == self.landed + 1 {
            self.landed = index;
            self.batches.push_back(Arc::clone(batch));
        }
        let behind = self.landed - index;
        Position(self.begin + self.batches.len() as u64 - 1 - behind)
    }
}

fn doubt() -> Outcome {
    let source = io::Error::new(io::ErrorKind::TimedOut, "no answer came");
    Outcome::Undecided(StoreError::Io { what: "cannot append".into(), source })
}

impl Changelog for SimulatedHolder {
    fn window(&self) -> usize {
        self.window
    }

    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>) {
        let (batch, sink) = (Arc::clone(batch), Arc::clone(sink));
        let sent = Sent { is_doomed: false, holder: self.number, index, batch, sink };
        self.log.0.lock().on_their_way.push_back(sent);
    }

    fn positions(&self) -> Result<Range<Position>, LogError> {
        let state = self.log.0.lock();
        Ok(Position(state.begin)..Position(state.begin + state.batches.len() as u64))
    }

    fn read(&self, from: Position, visit: VisitBatches<'_>) -> Result<(), LogError> {
        let (begin, batches) = {
            let state = self.log.0.lock();
            (state.begin, state.batches.clone())
        };
        let skipped = from.0.checked_sub(begin).ok_or(LogError::Trimmed(Position(begin)))?;
        for (position, batch) in (begin..).map(Position).zip(&batches).skip(skipped as usize) {
            if let ControlFlow::Break(()) = visit(position, batch) {
                break;
            }
        }
        Ok(())
    }

    fn trim(&self, before: Position) -> Result<(), LogError> {
        let mut state = self.log.0.lock();
        if state.holder != self.number {
            return Err(LogError::Fenced);
        }
        let gone = before.0.saturating_sub(state.begin).min(state.batches.len() as u64);
        state.batches.drain(..gone as usize);
        state.begin += gone;
        Ok(())
    }

    fn seal(&self) -> Result<(), LogError> {
        let mut state = self.log.0.lock();
        if state.holder != self.number {
            return Err(LogError::Fenced);
        }
        state.holder = 0;
        Ok(())
    }

    fn room(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
