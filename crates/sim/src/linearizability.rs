//! Linearizability: whether a concurrent history could be a sequential one.
//!
//! A history is *linearizable* if every call could have taken effect at one moment between its beginning and
//! its end, such that the results are those of the calls one after the other (Herlihy & Wing 1990). The search
//! is that of Wing & Gong (1993). It takes one of the calls that may come next, checks whether its result fits,
//! and goes on. It remembers the configurations that it has tried: the set of taken calls, and the state that
//! they left (Lowe 2017).
//!
//! A call without an end may have taken effect at any time since it began, or never.

use std::collections::HashSet;
use std::hash::Hash;

/// Maximum number of configurations that a search tries before it gives up.
const CONFIGURATIONS_MAX: usize = 300_000;

/// The time of an event: the step of the history, and the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The step. No two events of calls have the same one.
    pub step: u32,
    /// The time of the simulated clock, in milliseconds.
    pub millis: u64,
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call<O> {
    /// The operation, with its result.
    pub operation: O,
    /// The time of the call.
    pub begun: Moment,
    /// The time of the result, or `None` if it did not arrive.
    pub ended: Option<Moment>,
}

/// The interval, in milliseconds, in which a call can have taken effect if it is the next one to do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Earliest time.
    pub from: u64,
    /// Latest time.
    pub to: u64,
}

/// A sequential specification: the results and effects of calls that happen one after the other.
pub trait Specification {
    /// The state of the object.
    type State: Clone + Eq + Hash;
    /// An operation with its result. The result is not known if the call has no end.
    type Operation;

    /// Returns the initial state of the object.
    fn initial(&self) -> Self::State;

    /// Returns all states that are possible after `operation` has taken effect in `state` with its result; none
    /// if the result does not fit.
    fn next(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
        window: Window,
    ) -> Vec<Self::State>;
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The history is linearizable.
    Linearizable,
    /// The history is not linearizable.
    Contradictory,
    /// The search gave up.
    Unknown,
}

/// Searches for an order of the calls in which their results fit.
pub fn search<S: Specification>(specification: &S, calls: &[Call<S::Operation>]) -> Finding {
    let mut calls: Vec<&Call<S::Operation>> = calls.iter().collect();
    // Calls that have ended are tried first: a call without an end need not have taken effect.
    calls.sort_by_key(|call| (call.ended.is_none(), call.begun));
    let mut search = Search {
        specification,
        taken: vec![0; calls.len().div_ceil(64)],
        left: calls.iter().filter(|call| call.ended.is_some()).count(),
        calls,
        seen: HashSet::new(),
        from: 0,
    };
    match search.go_on(&specification.initial()) {
        true => Finding::Linearizable,
        false if search.seen.len() >= CONFIGURATIONS_MAX => Finding::Unknown,
        false => Finding::Contradictory,
    }
}

struct Search<'a, S: Specification> {
    specification: &'a S,
    calls: Vec<&'a Call<S::Operation>>,
    /// One bit for each call: whether it was taken.
    taken: Vec<u64>,
    /// Number of calls that have ended and were not taken.
    left: usize,
    /// The latest beginning of the taken calls, in milliseconds.
    from: u64,
    seen: HashSet<(Vec<u64>, S::State)>,
}

impl<S: Specification> Search<'_, S> {
    /// Whether the remaining calls fit after the taken calls, which have left `state`.
    fn go_on(&mut self, state: &S::State) -> bool {
        if self.left == 0 {
            return true;
        }
        let is_new = self.seen.len() < CONFIGURATIONS_MAX
            && self.seen.insert((self.taken.clone(), state.clone()));
        if !is_new {
            return false;
        }
        let ends = (0..self.calls.len()).filter(|at| !self.is_taken(*at));
        let first_end = ends.filter_map(|at| self.calls[at].ended).min();
        let first_end = first_end.expect("not all that have ended were taken");
        for at in 0..self.calls.len() {
            let call = self.calls[at];
            if self.is_taken(at) || call.begun > first_end {
                continue;
            }
            let from = self.from.max(call.begun.millis);
            let window = Window { from, to: first_end.millis };
            for next in self.specification.next(state, &call.operation, window) {
                // A call that has no end and no effect need not be taken.
                if call.ended.is_none() && next == *state {
                    continue;
                }
                let before = std::mem::replace(&mut self.from, from);
                self.take(at);
                if self.go_on(&next) {
                    return true;
                }
                self.give_back(at);
                self.from = before;
            }
        }
        false
    }

    fn is_taken(&self, at: usize) -> bool {
        self.taken[at / 64] >> (at % 64) & 1 == 1
    }

    fn take(&mut self, at: usize) {
        self.taken[at / 64] |= 1 << (at % 64);
        self.left -= usize::from(self.calls[at].ended.is_some());
    }

    fn give_back(&mut self, at: usize) {
        self.taken[at / 64] &= !(1 << (at % 64));
        self.left += usize::from(self.calls[at].ended.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register whose initial value is 0.
    struct Register;

    #[derive(Clone, Copy)]
    enum Access {
        Read(u32),
        Write(u32),
    }
    use Access::{Read, Write};

    impl Specification for Register {
        type State = u32;
        type Operation = Access;

        fn initial(&self) -> u32 {
            0
        }

        fn next(&self, state: &u32, operation: &Access, _: Window) -> Vec<u32> {
            match *operation {
                Write(value) => vec![value],
                Read(value) if value == *state => vec![value],
                Read(_) => Vec::new(),
            }
        }
    }

    fn find(calls: &[(Access, u32, Option<u32>)]) -> Finding {
        let at = |step| Moment { step, millis: u64::from(step) };
        let call = |(operation, begun, ended): &(Access, u32, Option<u32>)| Call {
            operation: *operation,
            begun: at(*begun),
            ended: ended.map(at),
        };
        search(&Register, &calls.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn calls_at_the_same_time_may_have_either_order() {
        let both = [(Write(1), 0, Some(10)), (Write(2), 1, Some(11))];
        for read in [1, 2] {
            let calls = [&both[..], &[(Read(read), 12, Some(13))]].concat();
            assert_eq!(find(&calls), Finding::Linearizable);
        }
        let calls = [&both[..], &[(Read(0), 12, Some(13))]].concat();
        assert_eq!(find(&calls), Finding::Contradictory);
    }

    #[test]
    fn a_read_does_not_go_back() {
        let write = (Write(1), 0, Some(10));
        assert_eq!(
            find(&[write, (Read(1), 1, Some(2)), (Read(1), 3, Some(4))]),
            Finding::Linearizable
        );
        assert_eq!(
            find(&[write, (Read(1), 1, Some(2)), (Read(0), 3, Some(4))]),
            Finding::Contradictory
        );
        assert_eq!(
            find(&[write, (Read(1), 1, Some(3)), (Read(0), 2, Some(4))]),
            Finding::Linearizable
        );
    }

    #[test]
    fn what_has_no_end_has_taken_effect_or_not_but_not_twice() {
        let write = (Write(1), 0, None);
        assert_eq!(find(&[write, (Read(0), 9, Some(10))]), Finding::Linearizable);
        assert_eq!(find(&[write, (Read(1), 9, Some(10))]), Finding::Linearizable);
        let other = (Write(2), 11, Some(12));
        let reads = [(Read(1), 9, Some(10)), other, (Read(1), 13, Some(14))];
        assert_eq!(find(&[&[write][..], &reads].concat()), Finding::Contradictory);
        assert_eq!(find(&[&[write, write][..], &reads].concat()), Finding::Linearizable);
    }

    #[test]
    fn nothing_takes_effect_before_it_begins() {
        assert_eq!(find(&[(Read(1), 0, Some(1)), (Write(1), 2, None)]), Finding::Contradictory);
    }
}
