//! A log of batches: what one holder appends, in its order, and learns the fate of.
//!
//! A shard has one [`Changelog`]. What is appended to it is durable when the log says so, perhaps much later and on
//! other machines; [`LocalLog`] is the log of a broker that has its store to itself.

pub mod conformance;
mod local;
pub mod simulated;

pub use local::LocalLog;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::{Batch, StoreError};

/// Where a batch is in a log: positions follow each other without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// What became of a batch that was appended.
#[derive(Debug)]
pub enum Outcome {
    /// It is durable at this position, and so are all before it.
    Done(Position),
    /// It is durable or not, or will be: nobody can tell. The same is true of all that were appended behind it.
    Undecided(StoreError),
    /// The log has another holder, or was sealed: nothing that is not done yet is ever done.
    Fenced,
}

/// Hears what becomes of batches.
pub trait Sink: Send + Sync {
    /// What became of the batch with this index. Called without a lock of the log, by any thread.
    fn on_outcome(&self, index: u64, outcome: Outcome);
}

/// Why a log cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// What is asked for is not there any more.
    #[error("the log begins at position {}", .0.0)]
    Trimmed(Position),
    /// The log has another holder, or was sealed.
    #[error("the log has another holder")]
    Fenced,
    /// The store or the network does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Called with each batch and its position; breaks to end.
pub type VisitBatches<'a> = &'a mut dyn FnMut(Position, &Batch) -> ControlFlow<()>;

/// A log that has been opened by its holder. Whoever opens it later is its holder from then on, and the earlier one is
/// fenced.
///
/// What must hold:
///
/// - **In order, without gaps.** The holder numbers its batches from 1 on. Whatever it loses, the log has a beginning of
///   them, each once. Outcomes come in the order of the indexes; each append has one.
/// - **Done is done.** A batch that is [`Outcome::Done`] is there after any crash, and so are all before it.
/// - **Doubt is ended by repetition.** After [`Outcome::Undecided`], and when it has heard of all that it has appended,
///   the holder appends what is in doubt again: the same bytes with the same indexes in the same order, and nothing else
///   before. What had landed does not land once more.
/// - **Fenced is final.** After [`Outcome::Fenced`] nothing is done any more. When somebody else has opened the log, or
///   [`seal`](Self::seal) has returned, nothing of an earlier holder lands.
pub trait Changelog: Send + Sync {
    /// How many batches may be appended whose outcome is not known; at least one.
    fn window(&self) -> usize;

    /// Appends a batch, which may be empty. `sink` hears what becomes of it: before this returns, or later.
    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>);

    /// Where the log begins, and where the next batch will be.
    ///
    /// # Errors
    /// [`LogError::Store`].
    fn positions(&self) -> Result<Range<Position>, LogError>;

    /// Visits the batches from a position on, until there are no more or `visit` breaks.
    ///
    /// # Errors
    /// [`LogError::Trimmed`]; [`LogError::Store`].
    fn read(&self, from: Position, visit: VisitBatches<'_>) -> Result<(), LogError>;

    /// Forgets what is before a position; the holder has it elsewhere.
    ///
    /// # Errors
    /// [`LogError::Fenced`]; [`LogError::Store`].
    fn trim(&self, before: Position) -> Result<(), LogError>;

    /// Ends the tenure of this holder: what it has appended and is not done may land or not, until this returns.
    ///
    /// # Errors
    /// [`LogError::Fenced`]: it was ended before. [`LogError::Store`]: it is not ended; where something is in doubt, that
    /// is to be appended again first.
    fn seal(&self) -> Result<(), LogError>;

    /// Whether there is room for more.
    ///
    /// # Errors
    /// [`StoreError::Full`] if there is not; [`StoreError::Io`] if nobody can say.
    fn room(&self) -> Result<(), StoreError>;
}
