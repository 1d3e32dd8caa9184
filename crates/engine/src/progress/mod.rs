//! Waiting until something is durable.
//!
//! A *source*, such as a shard, completes numbers in ascending order. Its [`Progress`] says up to which
//! number everything is done, and wakes the waiters. Something that depends on several sources has one number
//! of each ([`Commits`](barid_core::commits::Commits)).
//!
//! | type | items |
//! | --- | --- |
//! | [`Gate`] | leave in order, such as the answers to one client |
//! | [`WaitSet`] | leave as soon as they may, in any order |
//!
//! Both register a wake-up only for the first number that they wait for. So each of them costs a source one
//! entry in its list of waiters, however many items wait.

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
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that can wait for a source.
pub trait Waiter: Send + Sync + 'static {
    /// Called when a number that the waiter waits for is done or has failed. No lock of the source is held.
    /// The waiter's [`Gate`] or [`WaitSet`] must be polled soon, by any thread.
    fn wake(&self);
}

/// The state of a number of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The number is done.
    Done,
    /// The number is neither done nor failed yet.
    Pending,
    /// The number could not be completed for so long that nobody should wait for it. It may still be done
    /// later.
    Failed,
}

/// The progress of a source: the numbers that are done, those that have failed, and the waiters.
#[derive(Debug, Default)]
pub struct Progress {
    /// All numbers up to this one are done.
    done: AtomicU64,
    /// All numbers up to this one that are not done have failed.
    failed: AtomicU64,
    /// Whether so much waits for the source that nobody should add more for now.
    congested: AtomicBool,
    waiting: Mutex<Vec<Waiting>>,
}

/// A waiter and the number that it waits for.
struct Waiting {
    number: u64,
    who: Weak<dyn Waiter>,
    /// Whether the waiter has been woken for the failure of the number.
    is_told: bool,
}

impl Progress {
    /// Returns the state of a number.
    pub fn state(&self, number: u64) -> State {
        // `failed` is read before `done`: a failed number may become done between the two reads.
        let has_failed = number <= self.failed.load(Ordering::Acquire);
        match self.is_done(number) {
            _ if number == LOST => State::Failed,
            true => State::Done,
            false if has_failed => State::Failed,
            false => State::Pending,
        }
    }

    /// Whether all numbers up to this one are done.
    pub fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Whether so much waits for the source that nobody should add more for now.
    pub fn is_congested(&self) -> bool {
        self.congested.load(Ordering::Relaxed)
    }

    /// Sets [`Self::is_congested`].
    pub fn set_congested(&self, is_congested: bool) {
        if self.is_congested() != is_congested {
            self.congested.store(is_congested, Ordering::Relaxed);
        }
    }

    /// Whether any number has failed and has not been done since.
    fn has_failures(&self) -> bool {
        !self.is_done(self.failed.load(Ordering::Acquire))
    }

    /// Registers a waiter that is woken when a number is done, and when it has failed. Returns false if the
    /// number is done already.
    pub fn wake_when_done<W: Waiter>(&self, number: u64, waiter: &Weak<W>) -> bool {
        if number == LOST {
            // The number has failed already, and will never be done.
            return true;
        }
        // Checked under the lock, so that the source cannot pass the number between the check and the
        // registration.
        let mut waiting = self.waiting.lock();
        let waits = !self.is_done(number);
        let is_same = |last: &&mut Waiting| {
            last.number == number && std::ptr::addr_eq(last.who.as_ptr(), waiter.as_ptr())
        };
        if let Some(known) = waiting.last_mut().filter(is_same) {
            // The waiter now waits for one more thing, and may have to be woken for a failure again.
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

    /// Fails all numbers up to this one that are not done. Each waiter is woken once for that, and again if
    /// its number is done after all.
    pub fn fail(&self, number: u64) {
        self.failed.fetch_max(number, Ordering::AcqRel);
        let (mut told, mut lowest) = (Vec::new(), HashMap::new());
        let mut untold = HashSet::new();
        let mut all = self.waiting.lock();
        for waiting in all.iter_mut().filter(|waiting| waiting.number <= number) {
            // A waiter is woken once, however many entries it has: each time it is woken it may register all
            // of them again.
            if !std::mem::replace(&mut waiting.is_told, true)
                && untold.insert(waiting.address())
                && let Some(who) = waiting.who.upgrade()
            {
                told.push(who);
            }
            let least = lowest.entry(waiting.address()).or_insert(waiting.number);
            *least = waiting.number.min(*least);
        }
        // A waiter that is woken checks everything that it waits for, so one entry for each waiter is enough
        // until something is done.
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
    /// The address of the waiter, which identifies it.
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

    /// A waiter that counts its wake-ups.
    #[derive(Default)]
    pub struct Counter(AtomicUsize);

    impl Waiter for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counter {
        /// Number of wake-ups since the last call.
        pub fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    /// Creates `count` sources. Returns what advances them, and the sources.
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
