//! Sets of batches that must be durable before something can go on.

use smallvec::SmallVec;

use crate::ids::ShardIndex;

/// The batch number of a change that was noted in a shard after it had been closed: it is never durable.
pub const LOST: u64 = u64::MAX;

/// The batches to wait for: of each shard the last one. If empty, there is nothing to wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commits(SmallVec<[(ShardIndex, u64); 2]>);

impl Commits {
    /// Creates the set with one batch of one shard.
    pub fn one(shard: ShardIndex, batch: u64) -> Self {
        Self::from_iter([(shard, batch)])
    }

    /// Adds a batch of a shard.
    pub fn add(&mut self, shard: ShardIndex, batch: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == shard) {
            Some((_, known)) => *known = batch.max(*known),
            None => self.0.push((shard, batch)),
        }
    }

    /// Adds all batches of `other`.
    pub fn join(&mut self, other: &Self) {
        for (shard, batch) in other.iter() {
            self.add(shard, batch);
        }
    }

    /// Whether a change was noted in a shard that was already closed, so that the wait would never end.
    pub fn are_lost(&self) -> bool {
        self.iter().any(|(_, batch)| batch == LOST)
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all batches, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The shards and their batches.
    pub fn iter(&self) -> impl Iterator<Item = (ShardIndex, u64)> {
        self.0.iter().copied()
    }
}

impl FromIterator<(ShardIndex, u64)> for Commits {
    fn from_iter<I: IntoIterator<Item = (ShardIndex, u64)>>(batches: I) -> Self {
        let mut commits = Self::default();
        for (shard, batch) in batches {
            commits.add(shard, batch);
        }
        commits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_shard_the_last_batch_counts() {
        let mut commits = Commits::default();
        commits.add(1, 7);
        commits.add(0, 3);
        commits.add(1, 5);
        let mut other = Commits::default();
        other.add(0, 4);
        commits.join(&other);
        assert!(commits.iter().eq([(1, 7), (0, 4)]));
        assert!(!commits.are_lost());
        commits.add(0, LOST);
        commits.add(0, 5);
        assert!(commits.are_lost());
    }
}
