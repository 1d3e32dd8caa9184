//! A queue in which each item waits for the numbers that it depends on.

use std::collections::VecDeque;
use std::sync::Weak;

use barid_core::commits::Commits;
use barid_core::ids::ShardIndex;

use super::{Sources, State, Waiter};

/// A queue whose front may be taken when everything that the front waits for is done. The order of the items
/// is kept.
#[derive(Debug)]
pub struct Gate<T> {
    queue: VecDeque<(Commits, T)>,
    /// The wake-up that is registered for the front.
    armed: Option<(ShardIndex, u64)>,
    /// The wake-ups that are registered because the front has failed; see [`Self::take_failed`].
    behind: Commits,
}

/// The state of the front of a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled<T> {
    /// The front was taken out.
    Ready(T),
    /// The front waits, and the waiter will be woken.
    Pending,
    /// Something that the front waits for has failed. The front stays until it is [taken](Gate::pop_front),
    /// or until everything is done after all: the waiter will be woken then.
    Failed,
    /// The queue is empty.
    Empty,
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), armed: None, behind: Commits::default() }
    }
}

impl<T> Gate<T> {
    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The last item, and the commits that it waits for.
    pub fn back(&self) -> Option<&(Commits, T)> {
        self.queue.back()
    }

    /// The last item as a mutable reference, and the commits that it waits for.
    pub fn back_mut(&mut self) -> Option<(&Commits, &mut T)> {
        self.queue.back_mut().map(|(commits, item)| (&*commits, item))
    }

    /// Appends an item. The caller must [poll](Self::poll) the gate afterwards: `push` registers no wake-up.
    pub fn push(&mut self, commits: Commits, item: T) {
        self.queue.push_back((commits, item));
    }

    /// Takes the front out, whatever it waits for.
    pub fn pop_front(&mut self) -> Option<T> {
        self.queue.pop_front().map(|(_, item)| item)
    }

    /// The front, and the commits that it waits for.
    pub fn front(&self) -> Option<&(Commits, T)> {
        self.queue.front()
    }

    /// Takes the front out if everything that it waits for is done and `may_leave` agrees. Otherwise `waiter`
    /// is woken when the first number that is not done is done or has failed. There is no wake-up for
    /// `may_leave`: the caller must find out itself when the item may leave.
    pub fn poll<W: Waiter>(
        &mut self,
        sources: &Sources,
        waiter: &Weak<W>,
        may_leave: impl FnOnce(&T) -> bool,
    ) -> Polled<T> {
        loop {
            let Some((commits, item)) = self.queue.front() else { return Polled::Empty };
            let Some(first) = sources.first_undone(commits) else {
                return match may_leave(item) {
                    true => Polled::Ready(self.pop_front().expect("it was just looked at")),
                    false => Polled::Pending,
                };
            };
            let is_armed = self.armed == Some(first);
            if is_armed || sources.wake_when_done(first, waiter) {
                self.armed = Some(first);
                // The state is read after the wake-up has been registered, so that no change is missed.
                match sources.state(commits) {
                    State::Done => {}
                    State::Pending => return Polled::Pending,
                    State::Failed => {
                        // When numbers fail, a source keeps one wake-up for each waiter, the one with the
                        // lowest number. So the wake-up of this gate may be gone. It must be registered again
                        // when the lowest one comes, and also now, because the lowest one may have come
                        // already.
                        self.armed = None;
                        if !is_armed {
                            return Polled::Failed;
                        }
                    }
                }
            }
        }
    }

    /// Takes out the first item, at any position, that `is_meant` and that waits for something that has
    /// failed. If there is none and the front has failed, `waiter` is woken when anything that another item
    /// waits for fails as well.
    pub fn take_failed<W: Waiter>(
        &mut self,
        sources: &Sources,
        waiter: &Weak<W>,
        is_meant: impl Fn(&T) -> bool,
    ) -> Option<T> {
        // Almost always nothing has failed, and then the queue need not be searched.
        if !sources.has_failures() {
            return None;
        }
        let failed =
            |(commits, item): &(Commits, T)| is_meant(item) && sources.have_failed(commits);
        if let Some(index) = self.queue.iter().position(failed) {
            return self.queue.remove(index).map(|(_, item)| item);
        }
        if self.queue.front().is_some_and(|(commits, _)| sources.have_failed(commits)) {
            // A number fails together with all numbers before it, so the last number of each source is
            // enough.
            let mut last = Commits::default();
            self.queue.iter().for_each(|(commits, _)| last.join(commits));
            if last != self.behind {
                for one in last.iter() {
                    sources.wake_when_done(one, waiter);
                }
                self.behind = last;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::progress::tests::{Counter, sources};

    #[test]
    fn a_front_that_has_failed_stays_until_it_is_taken() {
        let (all, sources) = sources(1);
        let waiter = Arc::new(Counter::default());
        let me = Arc::downgrade(&waiter);
        let mut gate = Gate::default();
        gate.push(Commits::one(0, 1), 'a');
        gate.push(Commits::one(0, 2), 'b');
        assert_eq!(gate.poll(&sources, &me, |_| true), Polled::Pending);
        all[0].fail(1);
        assert_eq!(waiter.take(), 1);
        assert_eq!(gate.poll(&sources, &me, |_| true), Polled::Failed);
        assert_eq!(gate.take_failed(&sources, &me, |item| *item == 'b'), None);
        all[0].fail(2);
        assert_eq!(waiter.take(), 1, "for the one behind the front");
        assert_eq!(gate.take_failed(&sources, &me, |item| *item == 'b'), Some('b'));
        all[0].advance(2);
        assert!(waiter.take() > 0);
        assert_eq!(gate.poll(&sources, &me, |_| true), Polled::Ready('a'));
        assert_eq!(gate.poll(&sources, &me, |_| true), Polled::Empty);
    }

    #[test]
    fn what_may_not_leave_yet_stays() {
        let (_, sources) = sources(1);
        let me = Arc::downgrade(&Arc::new(Counter::default()));
        let mut gate = Gate::default();
        gate.push(Commits::default(), 1);
        assert_eq!(gate.poll(&sources, &me, |_| false), Polled::Pending);
        assert_eq!(gate.poll(&sources, &me, |_| true), Polled::Ready(1));
    }

    proptest! {
        /// A waiter that polls its gates only after wake-ups, at any delay, sees all items leave in order.
        #[test]
        fn no_wake_up_is_missing(
            items in proptest::collection::vec(
                (0..2_usize, proptest::collection::vec((0..3_u16, 1..9_u64), 0..3)),
                1..20,
            ),
            steps in proptest::collection::vec(
                (0..3_usize, 1..9_u64, any::<bool>(), any::<bool>()),
                0..30,
            ),
        ) {
            let (all, sources) = sources(3);
            let waiter = Arc::new(Counter::default());
            let me = Arc::downgrade(&waiter);
            let mut gates = [Gate::default(), Gate::default()];
            let mut left = [vec![], vec![]];
            let mut poll = |gates: &mut [Gate<usize>; 2]| {
                for (gate, left) in gates.iter_mut().zip(&mut left) {
                    while let Polled::Ready(item) = gate.poll(&sources, &me, |_| true) {
                        left.push(item);
                    }
                }
            };
            let mut pushed = [vec![], vec![]];
            for (index, (gate, commits)) in items.iter().enumerate() {
                gates[*gate].push(commits.iter().copied().collect(), index);
                pushed[*gate].push(index);
            }
            poll(&mut gates);
            let mut at = [0; 3];
            let end = (0..3).map(|source| (source, 9, false, true));
            for (source, number, fails, looks) in steps.into_iter().chain(end) {
                match fails {
                    true => all[source].fail(number),
                    false if number > at[source] => {
                        at[source] = number;
                        all[source].advance(number);
                    }
                    false => {}
                }
                if looks && waiter.take() > 0 {
                    poll(&mut gates);
                }
            }
            prop_assert_eq!(left, pushed);
        }
    }

    #[test]
    fn a_source_that_advances_in_another_thread_is_not_missed() {
        const LAST: u64 = 20_000;
        let (all, sources) = sources(2);
        let waiter = Arc::new(Counter::default());
        let me = Arc::downgrade(&waiter);
        let mut gate = Gate::default();
        for number in 1..=LAST {
            gate.push([(0, number), (1, number)].into_iter().collect(), number);
        }
        let mut left = 0;
        thread::scope(|scope| {
            for source in &all {
                scope.spawn(|| (1..=LAST).for_each(|number| source.advance(number)));
            }
            let mut is_woken = true;
            while left < LAST {
                while is_woken && let Polled::Ready(number) = gate.poll(&sources, &me, |_| true) {
                    left += 1;
                    assert_eq!(number, left);
                }
                is_woken = waiter.take() > 0;
                std::hint::spin_loop();
            }
        });
    }
}
