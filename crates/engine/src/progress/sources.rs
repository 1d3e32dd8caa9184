//! The sources that something may wait for.

use std::sync::{Arc, Weak};

use barid_core::commits::Commits;
use barid_core::ids::ShardIndex;

use super::{Progress, State, Waiter};

/// The sources of the process, by their numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sources(Arc<[Arc<Progress>]>);

impl Sources {
    /// Creates the list of sources, which are numbered from 0 in this order.
    pub fn new(all: impl IntoIterator<Item = Arc<Progress>>) -> Self {
        Self(all.into_iter().collect())
    }

    /// The source with this number.
    pub fn get(&self, source: ShardIndex) -> &Progress {
        &self.0[usize::from(source)]
    }

    /// Whether all these numbers are done.
    pub fn are_done(&self, commits: &Commits) -> bool {
        commits.iter().all(|(source, number)| self.get(source).is_done(number))
    }

    /// Whether any of these numbers has failed.
    pub fn have_failed(&self, commits: &Commits) -> bool {
        commits.iter().any(|(source, number)| self.get(source).state(number) == State::Failed)
    }

    /// Whether any source has a number that has failed and has not been done since.
    pub fn has_failures(&self) -> bool {
        self.0.iter().any(|source| source.has_failures())
    }

    /// The state of several numbers together: done if all are done, failed if any has failed.
    pub fn state(&self, commits: &Commits) -> State {
        match () {
            () if self.are_done(commits) => State::Done,
            () if self.have_failed(commits) => State::Failed,
            () => State::Pending,
        }
    }

    /// The first of these numbers that is not done, with its source.
    pub fn first_undone(&self, commits: &Commits) -> Option<(ShardIndex, u64)> {
        commits.iter().find(|(source, number)| !self.get(*source).is_done(*number))
    }

    /// Registers a waiter that is woken when a number of a source is done, and when it has failed. Returns
    /// false if the number is done already.
    pub fn wake_when_done<W: Waiter>(
        &self,
        (source, number): (ShardIndex, u64),
        waiter: &Weak<W>,
    ) -> bool {
        self.get(source).wake_when_done(number, waiter)
    }
}
