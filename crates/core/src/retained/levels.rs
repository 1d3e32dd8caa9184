//! Which levels the topics of retained messages have, and where: enough to see of most filters that match nothing
//! that they do, without a look at the topics.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt_proto::topic::MAX_LEVELS;

/// How many topics have a level at a place, and how many have so many levels.
///
/// A level is known by its hash, so another one may pass for it. Then a filter is taken for one that may match
/// something.
pub(super) struct Levels {
    hasher: FixedState,
    /// By place and text of the level; the first level is left out, because a filter whose first level is there is
    /// sought by it in any case.
    places: HashMap<u64, u32, FixedState>,
    /// By the number of levels; the last place is for all that have as many or more.
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

    /// Whether a topic may match the filter; no answer of "no" is wrong.
    pub(super) fn may_match(&self, filter: &[&str]) -> bool {
        let has_depth = match filter {
            // Also the parent level: `a/#` matches `a` (MQTT 5 §4.7.1.2).
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
