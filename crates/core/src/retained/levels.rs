//! Counts of the levels in the topics of retained messages, by position. They show for most filters without a match
//! that there is none, without looking at the topics.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt_proto::topic::MAX_LEVELS;

/// Counts of the topics that have a certain level at a certain position, and of those that have a certain number of
/// levels.
///
/// A level is identified by its hash. If two levels collide, a filter may be taken for one that can match something.
pub(super) struct Levels {
    hasher: FixedState,
    /// Number of topics by position and text of a level. The first level is left out: a filter with a literal first
    /// level is looked up by it in any case.
    places: HashMap<u64, u32, FixedState>,
    /// Number of topics by their number of levels; the last element counts all topics with that many levels or more.
    depths: [u32; MAX_LEVELS + 1],
}

impl Levels {
    pub(super) fn with_seed(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            depths: [0; MAX_LEVELS + 1],
        }
    }

    pub(super) fn add<'a>(&mut self, topic: impl Iterator<Item = &'a str>) {
        let mut depth = 0;
        for level in topic {
            if depth > 0 {
                *self.places.entry(self.place(depth, level)).or_default() += 1;
            }
            depth += 1;
        }
        self.depths[depth.min(MAX_LEVELS)] += 1;
    }

    pub(super) fn remove<'a>(&mut self, topic: impl Iterator<Item = &'a str>) {
        let mut depth = 0;
        for level in topic {
            let place = self.place(depth, level);
            if depth > 0
                && let Some(uses) = self.places.get_mut(&place)
            {
                *uses -= 1;
                if *uses == 0 {
                    self.places.remove(&place);
                }
            }
            depth += 1;
        }
        self.depths[depth.min(MAX_LEVELS)] -= 1;
        if self.places.len() < self.places.capacity() / 8 {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    /// Returns whether a topic may match the filter. `false` is always correct.
    pub(super) fn may_match(&self, filter: &[&str]) -> bool {
        let has_depth = match filter {
            // `#` includes the parent level: `a/#` matches `a` (MQTT 5 §4.7.1.2).
            [parents @ .., "#"] => {
                self.depths[parents.len().min(MAX_LEVELS)..].iter().any(|n| *n > 0)
            }
            all => self.depths[all.len().min(MAX_LEVELS)] > 0,
        };
        has_depth
            && filter.iter().enumerate().skip(1).all(|(place, level)| {
                matches!(*level, "+" | "#") || self.places.contains_key(&self.place(place, level))
            })
    }

    fn place(&self, place: usize, level: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_usize(place);
        hasher.write(level.as_bytes());
        hasher.finish()
    }
}
