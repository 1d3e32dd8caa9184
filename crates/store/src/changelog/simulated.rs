//! A log in memory, for tests and simulations: batches are on their way until a test decides their fate, and whoever
//! opens the log fences those who held it before.

use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changelog, LogError, Outcome, Position, Sink, VisitBatches};
use crate::{Batch, StoreError};

/// What is kept when its holders end, however they do. Cheap to clone.
#[derive(Clone, Default)]
pub struct SimulatedLog(Arc<Mutex<State>>);

/// What becomes of the batch that has been on its way for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It lands, and its holder hears of it.
    Land,
    /// It lands, and its holder does not hear of it.
    LandUnheard,
    /// It does not land, and its holder does not hear of that.
    Lose,
    /// Its holder hears nothing, and it lands later, when [`SimulatedLog::land_late`] is called, if it still may.
    Delay,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<Batch>>,
    /// The position of the first of them.
    begin: u64,
    /// Who has opened it last; 0: nobody has it.
    holder: u64,
    opened: u64,
    /// The index of the last batch of the present holder that has landed.
    landed: u64,
    on_their_way: VecDeque<Sent>,
    delayed: Vec<(u64, u64, Arc<Batch>)>,
}

struct Sent {
    /// One before it is in doubt.
    is_doomed: bool,
    holder: u64,
    index: u64,
    batch: Arc<Batch>,
    sink: Arc<dyn Sink>,
}

/// The log as one holder has it.
pub struct SimulatedHolder {
    log: SimulatedLog,
    number: u64,
    window: usize,
}

impl SimulatedLog {
    /// Opens it: from now on nothing of those who had it before lands.
    pub fn open(&self, window: usize) -> SimulatedHolder {
        let mut state = self.0.lock();
        state.opened += 1;
        state.holder = state.opened;
        state.landed = 0;
        SimulatedHolder { log: self.clone(), number: state.holder, window }
    }

    /// The log for somebody who only reads.
    pub fn reader(&self) -> impl Changelog {
        SimulatedHolder { log: self.clone(), number: u64::MAX, window: 1 }
    }

    /// Decides about the batch that has been on its way for longest. After doubt, those behind it are in doubt as well,
    /// whatever is decided. False: there is none.
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

    /// What was delayed lands now, if its holder still has the log.
    pub fn land_late(&self) {
        let mut state = self.0.lock();
        for (holder, index, batch) in std::mem::take(&mut state.delayed) {
            if state.holder == holder {
                state.land(index, &batch);
            }
        }
    }

    /// Forgets what is on its way, as when its holder dies: it may have landed, or not.
    pub fn forget(&self) {
        self.0.lock().on_their_way.clear();
    }

    /// How many batches are on their way.
    pub fn on_their_way(&self) -> usize {
        self.0.lock().on_their_way.len()
    }
}

impl State {
    /// A batch of the present holder arrives, perhaps not for the first time.
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
