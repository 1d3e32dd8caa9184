//! A set in which each item waits for the numbers that it depends on, independently of the other items.

use std::sync::Weak;

use barid_core::commits::Commits;
use barid_core::ids::ShardIndex;
use smallvec::SmallVec;

use super::{Sources, State, Waiter};

/// Items that wait, in no order.
#[derive(Debug)]
pub struct WaitSet<T> {
    lists: SmallVec<[List<T>; 2]>,
}

/// The items whose first number that is not done belongs to one source.
#[derive(Debug)]
struct List<T> {
    source: ShardIndex,
    /// The number for which a wake-up is registered.
    armed: Option<u64>,
    items: Vec<(Commits, T)>,
}

impl<T> Default for WaitSet<T> {
    fn default() -> Self {
        Self { lists: SmallVec::new() }
    }
}

impl<T> WaitSet<T> {
    /// Whether the set is empty.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.items.is_empty())
    }

    /// Adds an item. `waiter` is woken when the first number that the item waits for is done or has failed.
    /// Returns the item if there is nothing to wait for. An item that would wait forever must not be added:
    /// see [`Commits::are_lost`].
    pub fn push<W: Waiter>(
        &mut self,
        commits: Commits,
        item: T,
        sources: &Sources,
        waiter: &Weak<W>,
    ) -> Option<T> {
        debug_assert!(!commits.are_lost());
        while let Some((source, number)) = sources.first_undone(&commits) {
            let list = self.list(source);
            let is_armed =
                list.armed.is_some_and(|armed| sources.get(source).state(armed) == State::Pending);
            if is_armed || sources.wake_when_done((source, number), waiter) {
                if !is_armed {
                    list.armed = Some(number);
                }
                list.items.push((commits, item));
                return None;
            }
        }
        Some(item)
    }

    /// Takes out all items for which everything is done. Drops each item that waits for something that has
    /// failed and for which `is_over` returns true. `waiter` is woken again for the remaining items.
    pub fn take<W: Waiter>(
        &mut self,
        sources: &Sources,
        waiter: &Weak<W>,
        mut is_over: impl FnMut(&T) -> bool,
    ) -> Vec<T> {
        let mut done = Vec::new();
        let mut moved = Vec::new();
        for list in &mut self.lists {
            let progress = sources.get(list.source);
            // The items of a list are not examined before its wake-up has come.
            let Some(armed) = list.armed.filter(|armed| progress.state(*armed) != State::Pending)
            else {
                continue;
            };
            list.items.retain(|(commits, item)| !(sources.have_failed(commits) && is_over(item)));
            // While the number is failed, one wake-up is enough for the whole list.
            if list.items.is_empty()
                || progress.state(armed) == State::Done
                || !progress.wake_when_done(armed, waiter)
            {
                list.armed = None;
                moved.append(&mut list.items);
            }
        }
        for (commits, item) in moved {
            done.extend(self.push(commits, item, sources, waiter));
        }
        done
    }

    fn list(&mut self, source: ShardIndex) -> &mut List<T> {
        let known = self.lists.iter().position(|list| list.source == source);
        let at = known.unwrap_or_else(|| {
            self.lists.push(List { source, armed: None, items: Vec::new() });
            self.lists.len() - 1
        });
        &mut self.lists[at]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::progress::tests::{Counter, sources};

    /// One step of a test: an item is added, or a source advances or fails.
    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<(u16, u64)>),
        Advance(usize, u64),
        Fail(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            vec((0..3_u16, 1..9_u64), 0..3).prop_map(Step::Push),
            (0..3_usize, 1..9_u64).prop_map(|(source, number)| Step::Advance(source, number)),
            (0..3_usize, 1..9_u64).prop_map(|(source, number)| Step::Fail(source, number)),
        ]
    }

    proptest! {
        /// A waiter that calls `take` only after wake-ups, at any delay, gets all items that are done, and no
        /// others.
        #[test]
        fn no_wake_up_is_missing(steps in vec((step(), any::<bool>()), 0..60)) {
            let (all, sources) = sources(3);
            let waiter = Arc::new(Counter::default());
            let me = Arc::downgrade(&waiter);
            let mut waiting = WaitSet::default();
            let (mut left, mut pushed) = (Vec::new(), Vec::new());
            let mut at = [0; 3];
            let end = (0..3).map(|source| (Step::Advance(source, 9), true));
            for (step, looks) in steps.into_iter().chain(end) {
                match step {
                    Step::Push(commits) => {
                        let commits: Commits = commits.into_iter().collect();
                        pushed.push(commits.clone());
                        left.extend(waiting.push(commits, pushed.len() - 1, &sources, &me));
                    }
                    Step::Advance(source, number) if number > at[source] => {
                        at[source] = number;
                        all[source].advance(number);
                    }
                    Step::Advance(..) => {}
                    Step::Fail(source, number) => all[source].fail(number),
                }
                if looks && waiter.take() > 0 {
                    left.extend(waiting.take(&sources, &me, |_| false));
                }
                prop_assert!(left.iter().all(|index: &usize| sources.are_done(&pushed[*index])));
            }
            left.sort_unstable();
            prop_assert_eq!(left, (0..pushed.len()).collect::<Vec<_>>());
            prop_assert!(waiting.is_empty());
        }
    }

    #[test]
    fn what_has_failed_is_dropped_if_its_owner_says_so() {
        let (all, sources) = sources(1);
        let waiter = Arc::new(Counter::default());
        let me = Arc::downgrade(&waiter);
        let mut waiting = WaitSet::default();
        for (number, item) in [(1, 'a'), (1, 'b'), (2, 'c')] {
            assert_eq!(waiting.push(Commits::one(0, number), item, &sources, &me), None);
        }
        all[0].fail(1);
        assert_eq!(waiter.take(), 1);
        assert!(waiting.take(&sources, &me, |item| *item != 'b').is_empty());
        all[0].advance(2);
        assert_eq!(waiting.take(&sources, &me, |_| false), ['b', 'c']);
    }

    #[test]
    fn what_fails_again_and_again_takes_no_more_memory() {
        let (all, sources) = sources(1);
        let waiter = Arc::new(Counter::default());
        let me = Arc::downgrade(&waiter);
        let mut waiting = WaitSet::default();
        for item in 0..100 {
            waiting.push(Commits::one(0, 1 + item % 2), item, &sources, &me);
        }
        for _ in 0..20 {
            all[0].fail(2);
            for _ in 0..waiter.take() {
                assert!(waiting.take(&sources, &me, |_| false).is_empty());
            }
            assert!(all[0].waiting.lock().len() <= 4);
        }
        all[0].advance(2);
        assert_eq!(waiting.take(&sources, &me, |_| false).len(), 100);
    }
}
