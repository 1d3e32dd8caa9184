//! The patterns of the filters with wildcards: which of their levels are `+`.
//!
//! A topic determines the other levels, so it leads to at most one node of the trie for each level of each pattern,
//! however many filters there are. The sum of these levels is the maximum cost of a match. It is normally small: a
//! million filters `fleet/+/{device}/state` have one pattern of four levels. Thousands of patterns occur only if
//! somebody makes matches expensive on purpose.

use hashbrown::HashMap;

use foldhash::fast::FixedState;

/// The number of filters with each pattern.
#[derive(Default)]
pub(super) struct Patterns {
    uses: HashMap<Pattern, u32, FixedState>,
    levels: usize,
}

/// The pattern of a filter. A last level `#` is not part of it: its subscribers are found at the node of the level
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Pattern {
    /// A bit for each level that is `+`; the lowest bit is the first level.
    plus: u128,
    levels: u16,
}

impl Patterns {
    pub(super) fn add(&mut self, filter: &str) {
        let pattern = Pattern::of(filter);
        let uses = self.uses.entry(pattern).or_default();
        if *uses == 0 {
            self.levels += usize::from(pattern.levels);
        }
        *uses += 1;
    }

    pub(super) fn remove(&mut self, filter: &str) {
        let pattern = Pattern::of(filter);
        let Some(uses) = self.uses.get_mut(&pattern) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&pattern);
            self.levels -= usize::from(pattern.levels);
        }
    }

    /// Number of levels of all patterns together.
    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    /// The value of [`Self::levels`] with one more filter.
    pub(super) fn levels_with(&self, filter: &str) -> usize {
        let pattern = Pattern::of(filter);
        let new = if self.uses.contains_key(&pattern) { 0 } else { usize::from(pattern.levels) };
        self.levels + new
    }
}

impl Pattern {
    fn of(filter: &str) -> Self {
        let mut pattern = Self { plus: 0, levels: 0 };
        for level in filter.split('/').filter(|level| *level != "#") {
            if level == "+" {
                // Filters have at most as many levels as there are bits. With more, different patterns would be taken
                // for the same.
                pattern.plus |= 1u128.checked_shl(u32::from(pattern.levels)).unwrap_or(0);
            }
            pattern.levels = pattern.levels.saturating_add(1);
        }
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_differ_in_their_literals_have_one_pattern() {
        let mut patterns = Patterns::default();
        for filter in ["a/+/c", "a/+/d", "x/+/y/#", "+/b", "+/c/#", "#", "+/+"] {
            patterns.add(filter);
        }
        assert_eq!(patterns.levels(), 3 + 2 + 2);
        assert_eq!(patterns.levels_with("q/+/r"), 7);
        assert_eq!(patterns.levels_with("q/r/+"), 10);
        for filter in ["a/+/c", "+/+", "+/b"] {
            patterns.remove(filter);
        }
        assert_eq!(patterns.levels(), 3 + 2);
        for filter in ["a/+/d", "x/+/y/#", "+/c/#", "#"] {
            patterns.remove(filter);
        }
        assert_eq!((patterns.levels(), patterns.uses.len()), (0, 0));
    }

    /// Computes the number on which the default of `max_pattern_levels` is based.
    #[test]
    fn all_patterns_of_filters_with_up_to_seven_levels() {
        let mut patterns = Patterns::default();
        for levels in 1..=7 {
            for plus in 0..1 << levels {
                let level = |at| if plus >> at & 1 == 1 { "+" } else { "a" };
                patterns.add(&(0..levels).map(level).collect::<Vec<_>>().join("/"));
            }
        }
        assert_eq!(patterns.levels(), 1_538);
    }
}
