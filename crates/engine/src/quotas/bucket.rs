//! A token bucket, which any number of threads share.
//!
//! The whole state is one time: the moment at which everything that was taken is paid for. Each second pays
//! for `rate` tokens. If the moment is in the past, the bucket has tokens, at most those of one second: a
//! burst. If it is in the future, the bucket is in debt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barid_core::time::MonoTime;

/// A second, in nanoseconds: the time in which an unused bucket fills up.
const SECOND: u64 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub struct Bucket {
    /// When everything that was taken is paid for, in nanoseconds since the Unix epoch.
    paid_at: AtomicU64,
    /// Tokens in a second; 0: the bucket has no limit.
    rate: AtomicU64,
    /// Tokens that were taken so far and not given back, without those that were used elsewhere.
    spent: AtomicU64,
}

impl Bucket {
    /// Creates a full bucket. A `rate` of 0 sets no limit.
    pub const fn new(rate: u64) -> Self {
        Self { paid_at: AtomicU64::new(0), rate: AtomicU64::new(rate), spent: AtomicU64::new(0) }
    }

    /// Tokens in a second; 0: the bucket has no limit.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Takes at least `least` and at most `most` tokens, as many as the bucket has, and returns their number.
    /// Returns 0, and takes nothing, if it has fewer than `least`. Without a limit it has `most`.
    pub fn take(&self, now: MonoTime, least: u64, most: u64) -> u64 {
        self.borrow(now, least, most, Duration::ZERO)
    }

    /// Takes tokens as [`Self::take`] does, also those that will be there after this time. So the bucket gets
    /// into debt by at most this time.
    pub fn borrow(&self, now: MonoTime, least: u64, most: u64, ahead: Duration) -> u64 {
        let (rate, now) = (self.rate(), nanos(now));
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        if rate == 0 {
            return most;
        }
        // Each price is rounded up to a nanosecond, so three single tokens at a rate of 3 cost more than a second.
        // Nevertheless there are three. At high rates nobody misses a token.
        let rounding = if rate <= 1_000 { rate } else { 0 };
        let mut taken = 0;
        self.change(|paid_at| {
            let from = full(paid_at, now);
            let time = now.saturating_add(ahead).saturating_sub(from);
            taken = worth(time.saturating_add(rounding), rate).min(most);
            if taken < least.max(1) {
                taken = 0;
            }
            from.saturating_add(price(taken, rate))
        });
        self.spend(taken);
        taken
    }

    /// Takes `count` tokens, whether or not the bucket has them. Returns the time until they are paid for.
    pub fn charge(&self, now: MonoTime, count: u64) -> Duration {
        let (rate, now) = (self.rate(), nanos(now));
        if rate == 0 {
            return Duration::ZERO;
        }
        self.spend(count);
        let paid_at = self.change(|paid_at| full(paid_at, now).saturating_add(price(count, rate)));
        Duration::from_nanos(paid_at.saturating_sub(now))
    }

    /// Takes `count` tokens that were used out of another bucket for the same purpose, as long as that causes no debt of more than
    /// `most`: limits may differ for a while, and what was used there must not keep everybody out here.
    pub fn charge_elsewhere(&self, now: MonoTime, count: u64, most: Duration) {
        let (rate, now) = (self.rate(), nanos(now));
        if rate > 0 {
            let most = now.saturating_add(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
            self.change(|paid_at| {
                let from = full(paid_at, now);
                from.saturating_add(price(count, rate)).min(most.max(from))
            });
        }
    }

    /// Tokens that were taken out of this bucket and not given back, since it was created. Without a limit nothing is counted.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    fn spend(&self, count: u64) {
        self.spent.fetch_add(count, Ordering::Relaxed);
    }

    /// Gives back tokens that were taken and not used.
    pub fn give_back(&self, count: u64) {
        if self.rate() > 0 {
            self.give_back_elsewhere(count);
            // Tokens that were taken while there was no rate are not in `spent`, and may be given back when there is one.
            let less = |spent: u64| Some(spent.saturating_sub(count));
            let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Gives back tokens that were given back to another bucket.
    pub fn give_back_elsewhere(&self, count: u64) {
        let rate = self.rate();
        if rate > 0 {
            // Rounded down, so that taking and giving back never adds tokens.
            let price = u128::from(count) * u128::from(SECOND) / u128::from(rate);
            let price = u64::try_from(price).unwrap_or(u64::MAX);
            self.change(|paid_at| paid_at.saturating_sub(price));
        }
    }

    /// Time until the bucket is out of debt.
    pub fn debt(&self, now: MonoTime) -> Duration {
        if self.rate() == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.paid_at.load(Ordering::Relaxed).saturating_sub(nanos(now)))
    }

    /// Whether the bucket is full, so that a new one could replace it.
    pub fn is_full(&self, now: MonoTime) -> bool {
        let paid_at = self.paid_at.load(Ordering::Relaxed);
        self.rate() == 0 || paid_at <= nanos(now).saturating_sub(SECOND)
    }

    /// Changes the rate. A debt stays the same number of tokens, and a bucket that was not full does not
    /// become full: whoever floods gets no new burst.
    pub fn set_rate(&self, now: MonoTime, rate: u64) {
        let (before, now) = (self.rate.swap(rate, Ordering::Relaxed), nanos(now));
        if before == rate || before == 0 || rate == 0 {
            return;
        }
        self.change(|paid_at| match paid_at.checked_sub(now) {
            Some(debt) => now.saturating_add(price(worth(debt, before), rate)),
            None => paid_at,
        });
    }

    /// Applies `next` to the state, and returns the new one.
    fn change(&self, mut next: impl FnMut(u64) -> u64) -> u64 {
        let mut before = self.paid_at.load(Ordering::Relaxed);
        loop {
            let after = next(before);
            if after == before {
                return after;
            }
            let order = Ordering::Relaxed;
            match self.paid_at.compare_exchange_weak(before, after, order, order) {
                Ok(_) => return after,
                Err(present) => before = present,
            }
        }
    }
}

/// Returns the state of a bucket at `now`: an unused bucket gets no fuller than full.
fn full(paid_at: u64, now: u64) -> u64 {
    paid_at.max(now.saturating_sub(SECOND))
}

/// Nanoseconds that pay for `count` tokens.
fn price(count: u64, rate: u64) -> u64 {
    let nanos = (u128::from(count) * u128::from(SECOND)).div_ceil(u128::from(rate));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Tokens that `nanos` pay for.
fn worth(nanos: u64, rate: u64) -> u64 {
    let tokens = u128::from(nanos) * u128::from(rate) / u128::from(SECOND);
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

fn nanos(time: MonoTime) -> u64 {
    time.as_millis().saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_700_000_000_000;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(START + millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_second_of_tokens_is_there_at_once_and_then_the_rate() {
        let bucket = Bucket::new(100);
        assert_eq!(bucket.take(at(0), 1, 60), 60);
        assert_eq!(bucket.take(at(0), 1, 60), 40);
        assert_eq!(bucket.take(at(0), 1, 60), 0);
        assert_eq!(bucket.take(at(9), 1, 60), 0, "a token takes 10 ms");
        assert_eq!(bucket.take(at(10), 1, 60), 1);
        assert_eq!(bucket.take(at(60), 6, 60), 0, "five are fewer than six");
        assert_eq!(bucket.take(at(70), 6, 60), 6);
        assert_eq!(bucket.take(at(1_000_000), 1, 1_000), 100, "it gets no fuller than full");
    }

    #[test]
    fn all_tokens_of_a_second_can_be_taken_singly() {
        for rate in 1..=1_000 {
            let bucket = Bucket::new(rate);
            let taken = (0..rate + 1).filter(|_| bucket.take(at(0), 1, 1) == 1).count();
            assert_eq!(taken as u64, rate);
        }
    }

    #[test]
    fn a_debt_is_paid_with_time() {
        let bucket = Bucket::new(1_000);
        assert_eq!(bucket.charge(at(0), 1_000), Duration::ZERO);
        assert_eq!(bucket.charge(at(0), 250), millis(250));
        assert_eq!(bucket.debt(at(100)), millis(150));
        assert_eq!(bucket.take(at(100), 1, 1), 0);
        assert_eq!(bucket.charge(at(100), 50), millis(200));
        bucket.give_back(100);
        assert_eq!(bucket.debt(at(100)), millis(100));
        assert_eq!(bucket.debt(at(200)), Duration::ZERO);
        assert_eq!(bucket.take(at(250), 1, 100), 50);
    }

    #[test]
    fn what_is_used_elsewhere_causes_a_debt_that_is_bounded() {
        let (bucket, most) = (Bucket::new(100), Duration::from_secs(2));
        bucket.charge_elsewhere(at(0), 150, most);
        assert_eq!((bucket.debt(at(0)), bucket.spent()), (millis(500), 0));
        bucket.charge_elsewhere(at(0), u64::MAX, most);
        assert_eq!(
            bucket.debt(at(0)),
            most,
            "the other broker allows more, or its numbers are wrong"
        );
        bucket.charge(at(0), 100);
        bucket.charge_elsewhere(at(0), 1, most);
        assert_eq!((bucket.debt(at(0)), bucket.spent()), (Duration::from_secs(3), 100));
        bucket.give_back_elsewhere(50);
        assert_eq!((bucket.debt(at(0)), bucket.spent()), (millis(2_500), 100));
    }

    #[test]
    fn who_may_borrow_gets_no_further_ahead_than_it_may() {
        let (bucket, second) = (Bucket::new(100), Duration::from_secs(1));
        assert_eq!(bucket.borrow(at(0), 1, 30, second), 30);
        assert_eq!(bucket.take(at(0), 1, 100), 70, "nothing of the burst is lost");
        assert_eq!(bucket.borrow(at(0), 1, 60, second), 60);
        assert_eq!(bucket.borrow(at(0), 1, 60, second), 40);
        assert_eq!((bucket.debt(at(0)), bucket.borrow(at(0), 1, 60, second)), (second, 0));
        assert_eq!(bucket.take(at(0), 1, 1), 0);
        assert_eq!(bucket.borrow(at(100), 1, 60, second), 10);
        assert_eq!(bucket.borrow(at(1_000_000), 1, u64::MAX, second), 200);
    }

    #[test]
    fn without_a_rate_nothing_is_limited_and_nothing_is_written() {
        let bucket = Bucket::new(0);
        assert_eq!(bucket.take(at(0), 1, u64::MAX), u64::MAX);
        assert_eq!(bucket.charge(at(0), u64::MAX), Duration::ZERO);
        bucket.give_back(7);
        assert_eq!((bucket.debt(at(0)), bucket.paid_at.into_inner()), (Duration::ZERO, 0));
    }

    #[test]
    fn a_new_rate_gives_no_new_burst() {
        let bucket = Bucket::new(100);
        bucket.charge(at(0), 100 + 50);
        bucket.set_rate(at(0), 1_000);
        assert_eq!(bucket.debt(at(0)), millis(50), "fifty tokens still");
        bucket.set_rate(at(0), 10);
        assert_eq!(bucket.debt(at(0)), Duration::from_secs(5));
        bucket.set_rate(at(5_000), 1_000_000);
        assert_eq!(bucket.take(at(5_000), 1, u64::MAX), 0, "empty is empty at every rate");
        bucket.set_rate(at(5_500), 10);
        assert_eq!(bucket.take(at(5_500), 1, u64::MAX), 5, "half full is half full");
        bucket.set_rate(at(5_500), 0);
        assert_eq!(bucket.take(at(5_500), 1, 9), 9);
        bucket.set_rate(at(5_500), 10);
        assert_eq!(bucket.take(at(5_500), 1, 9), 0);
    }

    #[test]
    fn extremes_do_not_overflow() {
        for rate in [1, 2, 999_999_999, SECOND + 1, u64::MAX] {
            let bucket = Bucket::new(rate);
            bucket.charge(MonoTime::from_millis(u64::MAX), u64::MAX);
            bucket.charge(at(0), u64::MAX);
            bucket.give_back(u64::MAX);
            bucket.set_rate(at(0), u64::MAX - rate + 1);
            bucket.take(at(0), u64::MAX, u64::MAX);
            bucket.debt(at(0));
        }
        let bucket = Bucket::new(1);
        assert_eq!(
            bucket.take(MonoTime::from_millis(0), 1, 9),
            0,
            "the epoch has no second before it"
        );
    }

    #[test]
    fn full_is_what_a_new_one_is() {
        let bucket = Bucket::new(10);
        assert!(bucket.is_full(at(0)));
        bucket.charge(at(0), 1);
        assert!(!bucket.is_full(at(0)));
        assert!(!bucket.is_full(at(99)) && bucket.is_full(at(100)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(u64),
        Take(u64, u64),
        Charge(u64),
        /// Gives back a part of what was taken last, in percent.
        GiveBack(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..1_500_u64).prop_map(Step::Wait),
            (0..50_u64, 0..3_000_u64).prop_map(|(least, most)| Step::Take(least, most)),
            (0..300_u64).prop_map(Step::Charge),
            (0..=100_u64).prop_map(Step::GiveBack),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// Against a model with fractions of tokens.
        #[test]
        fn it_has_what_a_bucket_has(rate in 1..5_000_u64, steps in steps()) {
            let bucket = Bucket::new(rate);
            let full = rate as f64;
            // Each price is rounded up to a nanosecond.
            let (mut now, mut has, mut last, mut error) = (0, full, 0, 1e-6);
            for step in steps {
                error += 2e-9 * full;
                match step {
                    Step::Wait(millis) => {
                        now += millis;
                        has = (has + full * millis as f64 / 1_000.0).min(full);
                    }
                    Step::Take(least, most) => {
                        let taken = bucket.take(at(now), least, most);
                        prop_assert!(taken <= most && (taken == 0 || taken >= least));
                        prop_assert!(taken as f64 <= has.max(0.0) + error, "{taken} of {has}");
                        let could = has.min(most as f64) - error;
                        prop_assert!(
                            taken as f64 > could - 1.0 || could < least.max(1) as f64,
                            "{taken} of {has}"
                        );
                        has -= taken as f64;
                        last = taken;
                    }
                    Step::Charge(count) => {
                        has -= count as f64;
                        let wait = bucket.charge(at(now), count).as_secs_f64() * full;
                        prop_assert!((wait - (-has).max(0.0)).abs() <= error, "{wait} for {has}");
                        last = count;
                    }
                    Step::GiveBack(percent) => {
                        let back = last * percent / 100;
                        bucket.give_back(back);
                        has = (has + back as f64).min(full);
                        last -= back;
                    }
                }
            }
        }

        /// In every window of time, no more is taken than the rate times the window, and a burst.
        #[test]
        fn no_window_has_more_than_the_rate_and_a_burst(
            rate in 1..5_000_u64,
            steps in proptest::collection::vec((0..700_u64, 1..50_u64, 1..4_000_u64), 1..40),
        ) {
            let bucket = Bucket::new(rate);
            let (mut now, mut taken) = (0, Vec::new());
            for (pause, least, most) in steps {
                now += pause;
                taken.push((now, bucket.take(at(now), least, most)));
            }
            for begin in 0..taken.len() {
                let mut sum = 0;
                for (time, count) in &taken[begin..] {
                    sum += count;
                    let window = time - taken[begin].0;
                    prop_assert!(sum <= rate + rate * window / 1_000, "{sum} in {window} ms");
                }
            }
        }
    }

    #[test]
    fn threads_together_take_no_more_than_there_is() {
        let bucket = Bucket::new(100_000);
        let taken: u64 = std::thread::scope(|scope| {
            let take = || {
                let mut sum = 0;
                for millis in 0..500 {
                    for _ in 0..40 {
                        let taken = bucket.take(at(millis), 1, 9);
                        let back = taken / 3;
                        bucket.give_back(back);
                        sum += taken - back;
                    }
                }
                sum
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(taken <= 100_000 + 50_000, "{taken}");
        assert!(taken > 100_000 + 49_000, "{taken}");
    }
}
