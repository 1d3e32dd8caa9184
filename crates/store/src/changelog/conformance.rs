//! What every log must do, as a test that any implementation can be put to.
//!
//! A script of [`Step`]s is carried out by a holder as a shard is one, and after each step it is asked whether the
//! contract of [`Changelog`] holds.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changelog, LogError, Outcome, Position, Sink};
use crate::Batch;
use crate::Keyspace;

/// The keyspace that batches are in.
pub const KEYSPACE: Keyspace = Keyspace(0);

/// A log, and the world around it.
pub trait World {
    /// Opens the log anew; the holder before has died, or goes on without it.
    fn open(&mut self) -> Box<dyn Changelog>;

    /// Trouble comes with what is appended next, or with what is on its way; unless this world knows no such trouble.
    fn trouble(&mut self, trouble: Trouble);

    /// Time passes: the oldest batch that is on its way meets its fate. False: there is none.
    fn pass(&mut self) -> bool;

    /// Which keys have been put by batches that have landed.
    fn keys(&self) -> Vec<u64>;

    /// The holder dies: what was on its way has landed, or has not.
    fn crash(&mut self);
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A batch does not land, and its holder hears nothing.
    Lost,
    /// A batch lands, and its holder hears nothing.
    Unheard,
    /// A batch lands after its holder has been told of doubt.
    Late,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The holder appends, as far as the window allows: what is in doubt, or a new batch.
    Append,
    /// Something goes wrong.
    Trouble(Trouble),
    /// Time passes.
    Pass,
    /// The holder dies, and another one comes.
    Crash,
    /// Another holder opens the log, and the one before does not know.
    Open,
    /// The holder gives the log up, and opens it again.
    Seal,
    /// The holder forgets what is done.
    Trim,
}

/// What a sink has heard since the last time.
#[derive(Default)]
struct Heard(Mutex<VecDeque<(u64, Outcome)>>);

impl Sink for Heard {
    fn on_outcome(&self, index: u64, outcome: Outcome) {
        self.0.lock().push_back((index, outcome));
    }
}

/// A holder, as a shard is one.
struct Holder {
    log: Box<dyn Changelog>,
    heard: Arc<Heard>,
    /// All batches of this tenure; the first has index 1. Each puts one key, which no other has.
    batches: Vec<(u64, Arc<Batch>)>,
    done: u64,
    /// The last that is appended.
    sent: u64,
    /// The last that is in doubt.
    doubted: Option<u64>,
    last: Option<Position>,
    is_fenced: bool,
}

impl Holder {
    fn new(log: Box<dyn Changelog>) -> Self {
        let (heard, batches) = (Arc::default(), Vec::new());
        Self { log, heard, batches, done: 0, sent: 0, doubted: None, last: None, is_fenced: false }
    }

    fn append(&mut self, next_key: &mut u64) {
        let has_window = self.sent - self.done < self.log.window() as u64;
        if !has_window || self.doubted.is_some() || self.is_fenced {
            return;
        }
        if self.sent as usize == self.batches.len() {
            let mut batch = Batch::new();
            batch.put(KEYSPACE, &next_key.to_be_bytes(), b"");
            self.batches.push((*next_key, Arc::new(batch)));
            *next_key += 1;
        }
        self.sent += 1;
        let (_, batch) = &self.batches[self.sent as usize - 1];
        let sink = Arc::clone(&self.heard) as Arc<dyn Sink>;
        self.log.append(self.sent, batch, &sink);
    }

    /// Hears what has become of batches.
    fn listen(&mut self) {
        let heard = std::mem::take(&mut *self.heard.0.lock());
        for (index, outcome) in heard {
            match outcome {
                Outcome::Done(position) => {
                    assert!(!self.is_fenced, "{index} is done, and another before it was fenced");
                    assert!(
                        self.doubted.is_none(),
                        "{index} is done, and another before it is in doubt"
                    );
                    assert_eq!(index, self.done + 1, "outcomes come in their order");
                    assert!(self.last < Some(position), "positions ascend");
                    (self.done, self.last) = (index, Some(position));
                }
                Outcome::Undecided(_) => {
                    let before = self.doubted.unwrap_or(self.done);
                    assert_eq!(index, before + 1, "so does doubt");
                    self.doubted = Some(index);
                }
                Outcome::Fenced => self.is_fenced = true,
            }
        }
        if self.doubted == Some(self.sent) {
            (self.sent, self.doubted) = (self.done, None);
        }
    }

    fn keys(&self, count: u64) -> impl Iterator<Item = u64> {
        self.batches[..count as usize].iter().map(|(key, _)| *key)
    }
}

/// Carries out a script, and then makes an end of all that is under way.
///
/// # Panics
/// If the log does not do what it must.
pub fn check(world: &mut dyn World, script: &[Step]) {
    let mut next_key = 1;
    let mut holder = Holder::new(world.open());
    // What has landed of all tenures before.
    let mut settled = Vec::new();
    let mut trimmed = Position::default();
    for step in script.iter().chain(&[Step::Crash]) {
        match step {
            Step::Append => holder.append(&mut next_key),
            Step::Trouble(trouble) => world.trouble(*trouble),
            Step::Pass => _ = world.pass(),
            Step::Crash => {
                world.crash();
                holder.listen();
                settled = check_keys(world, &settled, &holder);
                holder = Holder::new(world.open());
            }
            Step::Open => {
                let next = world.open();
                settled = check_keys(world, &settled, &holder);
                // What the one before is told from now on changes nothing.
                holder = Holder::new(next);
            }
            Step::Seal if !holder.is_fenced => {
                if let Err(error) = holder.log.seal() {
                    let is_in_doubt = holder.sent < holder.batches.len() as u64;
                    assert!(is_in_doubt && matches!(error, LogError::Store(_)), "{error}");
                    continue;
                }
                assert!(matches!(holder.log.seal(), Err(LogError::Fenced)), "it is sealed");
                settled = check_keys(world, &settled, &holder);
                let landed = settled.len();
                let sink = Arc::clone(&holder.heard) as Arc<dyn Sink>;
                holder.log.append(holder.sent + 1, &Arc::default(), &sink);
                while world.pass() {}
                holder.listen();
                assert!(holder.is_fenced, "who has sealed it appends in vain");
                assert_eq!(world.keys().len(), landed, "nothing lands when it is sealed");
                holder = Holder::new(world.open());
            }
            Step::Trim => {
                if let Some(last) = holder.last {
                    holder.log.trim(last).expect("it has the log");
                    trimmed = trimmed.max(last);
                }
            }
            Step::Seal => {}
        }
        holder.listen();
        check_keys(world, &settled, &holder);
        check_reading(&*holder.log, trimmed);
    }
}

/// What is there is what was there, and then a beginning of what the holder has appended, with all that is done.
/// Answers what is there.
fn check_keys(world: &dyn World, settled: &[u64], holder: &Holder) -> Vec<u64> {
    let keys = world.keys();
    assert_eq!(keys.get(..settled.len()), Some(settled), "what was there is there");
    let new = &keys[settled.len()..];
    assert!(new.len() as u64 >= holder.done, "what is done is there");
    assert!(holder.keys(new.len() as u64).eq(new.iter().copied()), "each is there once, in order");
    keys
}

fn check_reading(log: &dyn Changelog, trimmed: Position) {
    let ends = log.positions().expect("it can be asked");
    assert!(ends.start <= ends.end && ends.start >= trimmed.min(ends.end));
    let mut seen = BTreeMap::new();
    let mut next = ends.start;
    log.read(ends.start, &mut |position, batch| {
        assert_eq!(position, next, "without gaps");
        next = Position(position.0 + 1);
        for change in batch.iter() {
            assert_eq!(seen.insert(format!("{change:?}"), position), None, "each batch once");
        }
        ControlFlow::Continue(())
    })
    .expect("from its beginning on it can be read");
    assert_eq!(next, ends.end);
    if let Some(before) = ends.start.0.checked_sub(1) {
        let read = log.read(Position(before), &mut |_, _| ControlFlow::Continue(()));
        assert!(matches!(read, Err(LogError::Trimmed(begin)) if begin == ends.start));
    }
}
