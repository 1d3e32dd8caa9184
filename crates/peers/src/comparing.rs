//! The side of a comparison that hears digests: which parts of its objects it lists for the other broker.

use crate::digest::{PARTS, Parts};

/// Approximate maximum number of objects in one list.
const LISTED_MAX: usize = 65_536;

/// Why digests are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The link has just been opened.
    First,
    /// The parts that differed and had no room in the last list.
    Next,
    /// It is time again. Parts that differ for the first time are perhaps about to change.
    Again,
}

/// The results of earlier comparisons on the same link.
#[derive(Clone, Copy, Debug)]
pub struct Comparing {
    /// The parts that differed the last time.
    differed: Parts,
    /// The part from which on the next list goes on.
    next: usize,
}

impl Default for Comparing {
    fn default() -> Self {
        Self { differed: Parts::NONE, next: 0 }
    }
}

impl Comparing {
    /// Returns the parts of which objects are to be listed, and whether more parts are to follow them in a
    /// [next](Comparison::Next) list. `objects` is the number of all objects.
    pub fn compare(
        &mut self,
        comparison: Comparison,
        differing: Parts,
        objects: usize,
    ) -> (Parts, bool) {
        let suspect = match comparison {
            Comparison::Again => differing.and(&self.differed),
            Comparison::First | Comparison::Next => differing,
        };
        if comparison != Comparison::Next {
            (self.differed, self.next) = (differing, 0);
        }
        let most = (LISTED_MAX * PARTS / objects.max(1)).max(1);
        let mut listed = Parts::NONE;
        let mut left = suspect.iter().filter(|part| *part >= self.next);
        for part in left.by_ref().take(most) {
            listed.insert(part);
        }
        let more = left.next();
        self.next = more.unwrap_or(PARTS);
        (listed, more.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: &[usize]) -> Parts {
        let mut parts = Parts::NONE;
        of.iter().for_each(|part| parts.insert(*part));
        parts
    }

    #[test]
    fn a_new_link_lists_all_that_differs() {
        let mut comparing = Comparing::default();
        assert_eq!(
            comparing.compare(Comparison::First, parts(&[1, 9]), 10),
            (parts(&[1, 9]), false)
        );
    }

    #[test]
    fn later_only_what_differs_twice_is_listed() {
        let mut comparing = Comparing::default();
        comparing.compare(Comparison::First, Parts::NONE, 10);
        let mut again =
            |differing: &[usize]| comparing.compare(Comparison::Again, parts(differing), 10).0;
        assert_eq!(again(&[1, 2]), Parts::NONE);
        assert_eq!(again(&[2, 3]), parts(&[2]));
        assert_eq!(again(&[3]), parts(&[3]));
        assert_eq!(again(&[]), Parts::NONE);
    }

    #[test]
    fn lists_are_bounded_and_go_on() {
        let mut comparing = Comparing::default();
        let objects = LISTED_MAX * PARTS / 2;
        let (first, more) = comparing.compare(Comparison::First, parts(&[1, 5, 7, 8, 9]), objects);
        assert_eq!((first, more), (parts(&[1, 5]), true));
        // Part 5 still differs, because the other broker has nothing newer.
        let mut next =
            |differing: &[usize]| comparing.compare(Comparison::Next, parts(differing), objects);
        assert_eq!(next(&[5, 7, 8, 9]), (parts(&[7, 8]), true));
        assert_eq!(next(&[5, 9]), (parts(&[9]), false));
        assert_eq!(next(&[5]), (Parts::NONE, false));
    }

    #[test]
    fn one_part_at_least_is_listed() {
        let mut comparing = Comparing::default();
        assert_eq!(
            comparing.compare(Comparison::First, parts(&[3]), usize::MAX / PARTS),
            (parts(&[3]), false)
        );
    }
}
