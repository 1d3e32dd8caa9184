//! Conformance test for implementations of [`Changelog`].
//!
//! A script of [`Step`]s is executed by a holder that behaves as a shard does. After each step, the test checks the
//! contract of [`Changelog`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Changelog, LogError, Outcome, Position, Sink};
use crate::Batch;
use crate::Keyspace;

/// The keyspace of all batches.
pub const KEYSPACE: Keyspace = Keyspace(0);

/// A log under test, and the environment that makes it fail.
pub trait World {
    /// Opens the log anew. The previous holder has died, or goes on without the log.
    fn open(&mut self) -> Box<dyn Changelog>;

    /// Causes trouble with the next batch that is appended, or with one in flight. An environment that does not know
    /// this kind of trouble does nothing.
    fn trouble(&mut self, trouble: Trouble);

    /// Lets time pass: the fate of the oldest batch in flight is decided. Returns false if there is none.
    fn pass(&mut self) -> bool;

    /// Returns the keys that were put by batches that have landed.
    fn keys(&self) -> Vec<u64>;

    /// Simulates the death of the holder: each batch in flight has landed or not.
    fn crash(&mut self);
}

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A batch does not land, and its holder is told that it is in doubt.
    Lost,
    /// A batch lands, and its holder is told that it is in doubt.
    Unheard,
    /// A batch lands after its holder was told that it is in doubt.
    Late,
}

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The holder appends, if the window allows it: a batch in doubt again, or a new one.
    Append,
    /// A failure occurs.
    Trouble(Trouble),
    /// Time passes.
    Pass,
    /// The holder dies, and another one opens the log.
    Crash,
    /// Another holder opens the log, and the previous one does not know.
    Open,
    /// The holder seals the log, and opens it again.
    Seal,
    /// The holder trims the batches that are done.
    Trim,
}

/// Sink that collects the outcomes since they were last processed.
#[derive(Default)]
struct Heard(Mutex<VecDeque<(u64, Outcome)>>);

impl Sink for Heard {
    fn on_outcome(&self, index: u64, outcome: Outcome) {
        self.0.lock().push_back((index, outcome));
    }
}

/// A holder that behaves as a shard does.
struct Holder {
    log: Box<dyn Changelog>,
    heard: Arc<Heard>,
    /// All batches of this tenure; the first has index 1. Each batch puts one key, which no other batch puts.
    batches: Vec<(u64, Arc<Batch>)>,
    done: u64,
    /// The index of the last batch that was appended.
    sent: u64,
    /// The index of the last batch that is in doubt.
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

    /// Processes the outcomes that have arrived.
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

/// Executes a script, and then ends with a crash.
///
/// # Panics
/// If the log violates the contract.
pub fn check(world: &mut dyn World, script: &[Step]) {
    let mut next_key = 1;
    let mut holder = Holder::new(world.open());
    // Keys of all batches that have landed in earlier tenures.
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
                // Outcomes that the previous holder hears from now on are ignored.
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

/// Checks that the keys in the log are those settled before, followed by a prefix of what the holder has appended, with
/// at least all batches that are done. Returns the keys in the log.
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
