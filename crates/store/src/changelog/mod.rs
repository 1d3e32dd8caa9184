//! A log of batches: one holder appends batches in order, and learns the outcome of each.
//!
//! A shard has one [`Changelog`]. An appended batch is durable when the log says so, perhaps much later and on other
//! machines. [`LocalLog`] is the log of a broker that has its store to itself.

pub mod conformance;
mod local;
pub mod simulated;

pub use local::LocalLog;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::{Batch, StoreError};

/// The place of a batch in a log. Positions follow each other without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// The outcome of an append.
#[derive(Debug)]
pub enum Outcome {
    /// The batch is durable at this position, and so are all batches before it.
    Done(Position),
    /// Nobody knows whether the batch is durable or will become so. The same is true of all batches appended after it.
    Undecided(StoreError),
    /// The log has another holder, or was sealed: no batch that is not done yet will ever be done.
    Fenced,
}

/// Receives the outcomes of appended batches.
pub trait Sink: Send + Sync {
    /// Called with the outcome of the batch with this index, on any thread, while no lock of the log is held.
    fn on_outcome(&self, index: u64, outcome: Outcome);
}

/// The error of a log that cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The requested batches have been trimmed; the log begins at this position.
    #[error("the log begins at position {}", .0.0)]
    Trimmed(Position),
    /// The log has another holder, or was sealed.
    #[error("the log has another holder")]
    Fenced,
    /// The store or the network failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Callback of a read: called with each batch and its position; returns `ControlFlow::Break` to end the read.
pub type VisitBatches<'a> = &'a mut dyn FnMut(Position, &Batch) -> ControlFlow<()>;

/// A log, opened by its holder. Whoever opens the log later becomes its holder, and the earlier holder is fenced.
///
/// What must hold:
///
/// - **In order, without gaps.** The holder numbers its batches from 1. Whatever is lost, the log has a prefix of these
///   batches, each once. Outcomes arrive in the order of the indexes, one for each append.
/// - **Done is done.** A batch that is [`Outcome::Done`] is there after any crash, and so are all batches before it.
/// - **Doubt is resolved by repetition.** After [`Outcome::Undecided`], the holder waits for the outcomes of everything
///   that it has appended. Then it appends the batches in doubt again: the same bytes with the same indexes in the same
///   order, and nothing else before them. A batch that had landed does not land a second time.
/// - **Fenced is final.** After [`Outcome::Fenced`] no batch is done any more. Once another holder has opened the log,
///   or [`seal`](Self::seal) has returned, no batch of an earlier holder lands.
pub trait Changelog: Send + Sync {
    /// Maximum number of appended batches whose outcome is not known; at least one.
    fn window(&self) -> usize;

    /// Appends a batch, which may be empty. `sink` receives the outcome, before this call returns or later.
    fn append(&self, index: u64, batch: &Arc<Batch>, sink: &Arc<dyn Sink>);

    /// Returns the position where the log begins, and the position that the next batch will have.
    ///
    /// # Errors
    /// [`LogError::Store`].
    fn positions(&self) -> Result<Range<Position>, LogError>;

    /// Visits the batches from position `from` on, until there are no more or `visit` breaks.
    ///
    /// # Errors
    /// [`LogError::Trimmed`]; [`LogError::Store`].
    fn read(&self, from: Position, visit: VisitBatches<'_>) -> Result<(), LogError>;

    /// Forgets the batches before a position, which the holder has elsewhere.
    ///
    /// # Errors
    /// [`LogError::Fenced`]; [`LogError::Store`].
    fn trim(&self, before: Position) -> Result<(), LogError>;

    /// Ends the tenure of this holder. Until this returns, batches that were appended and are not done may land or not.
    ///
    /// # Errors
    /// [`LogError::Fenced`]: the tenure had ended before. [`LogError::Store`]: the tenure has not ended; batches in
    /// doubt must be appended again first.
    fn seal(&self) -> Result<(), LogError>;

    /// Checks that there is free space for more batches.
    ///
    /// # Errors
    /// [`StoreError::Full`] if there is not; [`StoreError::Io`] if the free space cannot be determined.
    fn room(&self) -> Result<(), StoreError>;
}
