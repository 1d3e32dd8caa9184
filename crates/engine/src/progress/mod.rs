//! Waiting until something is durable.
//!
//! A *source*, such as a shard, does things that are numbered in the order in which they are done: its [`Progress`]
//! tells how far it has got, and wakes who waits. What depends on several sources has one number of each
//! ([`Commits`](barid_core::commits::Commits)).
//!
//! | type | what waits |
//! | --- | --- |
//! | [`Gate`] | things that leave in their order, such as the answers to one client |
//! | [`WaitSet`] | things that leave when they may, whatever is before them |
//!
//! Both have a wake-up set for what they wait for first, and no other. So what a client waits for costs one entry of a
//! source's list, however much it is.

mod gate;
mod sources;
mod wait_set;

pub use gate::{Gate, Polled};
pub use sources::Sources;
pub use wait_set::WaitSet;

use std::sync::Weak;

use barid_core::commits::LOST;
use hashbrown::{HashMap, HashSet};

use crate::faults::{Rule, holds};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Can wait for a source.
pub trait Waiter: Send + Sync + 'static {
    /// Something that it waits for is done, or has failed. Called without a lock of the source. What it has in a
    /// [`Gate`] or [`WaitSet`] is to be polled soon, by whatever thread.
    fn wake(&self);
}

/// Whether a number of a source is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is done.
    Done,
    /// It will be done, or will fail.
    Pending,
    /// It could not be done, for so long that nobody should wait for it. It may be done all the same, later.
    Failed,
}

/// How far a source has got.
#[derive(Debug, Default)]
pub struct Progress {
    /// All up to this number is done.
    done: AtomicU64,
    /// All up to this number that is not done has failed.
    failed: AtomicU64,
    waiting: Mutex<Vec<Waiting>>,
}

/// Somebody waits for a number.
struct Waiting {
    number: u64,
    who: Weak<dyn Waiter>,
    /// It has been told that the number has failed.
    is_told: bool,
}

impl Progress {
    /// Whether a number is done, or has failed.
    pub fn state(&self, number: u64) -> State {
        // In this order, as it may become done in between.
        let has_failed = number <= self.failed.load(Ordering::Acquire);
        match self.is_done(number) {
            _ if number == LOST => State::Failed,
            true => State::Done,
            false if has_failed => State::Failed,
            false => State::Pending,
        }
    }

    /// Whether all up to this number is done.
    pub fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Whether a number has failed and is not done since.
    fn has_failures(&self) -> bool {
        !self.is_done(self.failed.load(Ordering::Acquire))
    }

    /// Registers a waiter that is woken when a number is done, and when it has failed. Returns false if the number is done
    /// already.
    pub fn wake_when_done<W: Waiter>(&self, number: u64, waiter: &Weak<W>) -> bool {
        if number == LOST {
            // It has failed already, and will not be done.
            return true;
        }
        // Under the lock, so that the source cannot pass between the question and the answer.
        let mut waiting = self.waiting.lock();
        let waits = !self.is_done(number);
        let is_same = |last: &&mut Waiting| {
            last.number == number && std::ptr::addr_eq(last.who.as_ptr(), waiter.as_ptr())
        };
        if let Some(known) = waiting.last_mut().filter(is_same) {
            // It has something else that waits, and may have to hear again.
            known.is_told = false;
        } else if waits {
            waiting.push(Waiting { number, who: Weak::<W>::clone(waiter), is_told: false });
        }
        waits
    }

    /// Completes all numbers up to this one, and wakes their waiters.
    pub fn advance(&self, number: u64) {
        if holds(Rule::WakeWhenDone) {
            self.done.store(number, Ordering::Release);
        }
        let is_over = |waiting: &mut Waiting| waiting.number <= number;
        let over: Vec<_> = self.waiting.lock().extract_if(.., is_over).collect();
        for waiting in over {
            if let Some(waiter) = waiting.who.upgrade() {
                waiter.wake();
            }
        }
        if !holds(Rule::WakeWhenDone) {
            self.done.store(number, Ordering::Release);
        }
    }

    /// Fails all numbers up to this one that are not done. Each waiter is woken once for that, and again when its number is
    /// done nevertheless.
    pub fn fail(&self, number: u64) {
        self.failed.fetch_max(number, Ordering::AcqRel);
        let (mut told, mut lowest) = (Vec::new(), HashMap::new());
        let mut untold = HashSet::new();
        let mut all = self.waiting.lock();
        for waiting in all.iter_mut().filter(|waiting| waiting.number <= number) {
            // Once, however often it waits: each time it is woken it may have itself woken again for all of that.
            if !std::mem::replace(&mut waiting.is_told, true)
                && untold.insert(waiting.address())
                && let Some(who) = waiting.who.upgrade()
            {
                told.push(who);
            }
            let least = lowest.entry(waiting.address()).or_insert(waiting.number);
            *least = waiting.number.min(*least);
        }
        // Whoever is woken looks at all that it waits for. So one entry for each is enough while nothing is done.
        all.retain(|waiting| {
            waiting.number > number
                || (waiting.who.strong_count() > 0
                    && lowest.get(&waiting.address()) == Some(&waiting.number)
                    && lowest.remove(&waiting.address()).is_some())
        });
        drop(all);
        for waiter in told {
            waiter.wake();
        }
    }
}

impl Waiting {
    /// Tells one waiter from another.
    fn address(&self) -> *const () {
        self.who.as_ptr().cast()
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    pub struct Counter(AtomicUsize);

    impl Waiter for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counter {
        /// How often since the last time.
        pub fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    /// So many sources, and what advances them.
    pub fn sources(count: usize) -> (Vec<Arc<Progress>>, Sources) {
        let all: Vec<_> = (0..count).map(|_| Arc::<Progress>::default()).collect();
        (all.clone(), Sources::new(all))
    }

    #[test]
    fn who_waits_is_woken_when_it_is_done_and_not_before() {
        let (progress, waiter) = (Progress::default(), Arc::new(Counter::default()));
        let me = Arc::downgrade(&waiter);
        let woken = || waiter.0.load(Ordering::Relaxed);
        assert!(progress.wake_when_done(2, &me));
        progress.advance(1);
        assert_eq!((woken(), progress.state(2)), (0, State::Pending));
        progress.advance(3);
        assert_eq!((woken(), progress.state(2)), (1, State::Done));
        assert!(!progress.wake_when_done(3, &me));
        progress.advance(4);
        assert_eq!(woken(), 1);
    }

    #[test]
    fn what_has_failed_is_told_once_and_may_be_done_later() {
        let (progress, waiter) = (Progress::default(), Arc::new(Counter::default()));
        let me = Arc::downgrade(&waiter);
        let woken = || waiter.0.load(Ordering::Relaxed);
        progress.wake_when_done(1, &me);
        progress.wake_when_done(2, &me);
        progress.fail(1);
        assert_eq!(
            (woken(), progress.state(1), progress.state(2)),
            (1, State::Failed, State::Pending)
        );
        progress.fail(2);
        assert_eq!((woken(), progress.state(2)), (2, State::Failed));
        progress.fail(2);
        assert_eq!(woken(), 2, "it knows");
        progress.advance(2);
        assert_eq!((woken(), progress.state(1), progress.state(2)), (3, State::Done, State::Done));
    }

    #[test]
    fn who_waits_for_much_is_woken_once_when_it_fails() {
        let (progress, waiter) = (Progress::default(), Arc::new(Counter::default()));
        let me = Arc::downgrade(&waiter);
        for number in [1, 2, 1, 2] {
            progress.wake_when_done(number, &me);
        }
        progress.fail(2);
        assert_eq!((waiter.take(), progress.waiting.lock().len()), (1, 1));
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let (progress, waiter) = (Progress::default(), Arc::new(Counter::default()));
        progress.wake_when_done(1, &Arc::downgrade(&waiter));
        drop(waiter);
        progress.fail(1);
        assert!(progress.waiting.lock().is_empty());
        progress.advance(1);
    }
}
