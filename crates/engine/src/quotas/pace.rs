//! The pace of one connection in one direction, as the quotas of its tenant and its user allow it.
//!
//! Many connections share a bucket. A connection that finds too few tokens takes a *place*: it is charged for
//! a portion at once, and may use it when the bucket has been paid for it. So the connections of a tenant
//! have their turns in the order in which they asked, each wakes when its own portion is there, and none in
//! between.
//!
//! A portion follows what the connection used last: a client that sends a small message now and then does not
//! wait for tokens that it will not use, and a flood wakes its connection only every [`PORTION`]. If many
//! connections wait, portions are smaller, so that the others wait less.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;

use super::usage::{self, Flow, Usage};
use crate::limits::Quota;

/// What a connection that floods gets at a time, as the time in which the rate pays for it. With shorter
/// portions connections would wake more often, and each wake-up delays other clients of the thread. With longer ones other clients of the
/// same thread would wait longer, while all that a portion allows is done in one turn.
const PORTION: Duration = Duration::from_millis(20);

/// What a connection is granted at a time of the tokens that are there, as the time in which the rate pays for
/// them. With more, others would find none while this connection has some that it does not use.
const GRANT: Duration = Duration::from_millis(20);

/// The wait in the queue of a bucket at which portions are half as large.
const LONG_QUEUE: Duration = Duration::from_millis(50);

/// Time for which a connection that has waited counts as one at its limit.
const LATELY: Duration = Duration::from_secs(1);

/// The pace of one connection in one direction.
#[derive(Debug)]
pub struct Pace {
    flow: Flow,
    /// Time by which the buckets may be in debt before the connection has to wait.
    ahead: Duration,
    /// The tenant and the user, as far as they have a limit.
    tenant: Option<Arc<Usage>>,
    user: Option<Arc<Usage>>,
    /// Tokens that were taken from the buckets and not used.
    credit: u64,
    /// Tokens used since the last [`Pace::rest`].
    used: u64,
    /// Tokens that the connection has used before its last [`Pace::rest`]. It will probably use as many again.
    portion: u64,
    waits: Option<Wait>,
    /// A wait that has ended and was not reported.
    ended: Option<(Quota, Duration)>,
    /// The time at which the last wait ended.
    waited_at: Option<MonoTime>,
}

/// A wait for tokens, which are in the credit already.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: MonoTime,
    until: MonoTime,
    quota: Quota,
}

/// The answer of a [`Pace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// So many tokens may be used now, at least one.
    Go(u64),
    /// The connection has to wait, and has just begun to, because of this quota.
    Begins(Quota),
    /// The connection still has to wait.
    Waits,
}

impl Pace {
    /// Creates the pace for a flow; `None` if neither the tenant nor the user has a limit for it.
    pub(super) fn new(
        flow: Flow,
        tenant: &Arc<Usage>,
        user: Option<&Arc<Usage>>,
    ) -> Option<Box<Self>> {
        let limited = |of: &&Arc<Usage>| of.bucket(flow).rate() > 0;
        let tenant = Some(tenant).filter(limited).cloned();
        let user = user.filter(limited).cloned();
        (tenant.is_some() || user.is_some()).then(|| {
            Box::new(Self {
                flow,
                ahead: Duration::ZERO,
                tenant,
                user,
                credit: 0,
                used: 0,
                portion: 1,
                waits: None,
                ended: None,
                waited_at: None,
            })
        })
    }

    /// Lets the connection go on while the buckets are in debt by at most this time.
    pub(super) fn going_ahead(mut self: Box<Self>, ahead: Duration) -> Box<Self> {
        self.ahead = ahead;
        self
    }

    /// Tells that the connection will ask for so many tokens.
    pub(super) fn expect(&mut self, count: u64) {
        self.portion = count;
    }

    /// Asks for at most `most` tokens.
    pub fn ask(&mut self, now: MonoTime, most: u64) -> Pass {
        self.end_wait(now);
        if self.waits.is_some() {
            return Pass::Waits;
        }
        if self.credit == 0 {
            let portion = self.next_portion(now);
            let most = most.min(self.tokens_in(GRANT));
            self.credit = self.take(now, portion.min(most), most);
            if self.credit == 0
                && let Some(quota) = self.queue_up(now, portion)
            {
                return Pass::Begins(quota);
            }
        }
        Pass::Go(self.credit.min(most))
    }

    /// Ends the wait for tokens if they are there by now.
    pub fn end_wait(&mut self, now: MonoTime) {
        if let Some(wait) = self.waits.take_if(|wait| wait.until <= now) {
            self.ended = Some((wait.quota, now.since(wait.since)));
            self.waited_at = Some(now);
        }
    }

    /// Whether the connection has had to wait lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        self.waited_at.is_some_and(|at| now.since(at) < LATELY)
    }

    /// Asks for `count` tokens at once. Returns whether they are there.
    pub fn has(&mut self, now: MonoTime, count: u64) -> bool {
        if self.waits.is_none() && self.credit < count {
            let missing = count - self.credit;
            self.credit += self.take(now, missing, missing);
        }
        self.waits.is_none() && self.credit >= count
    }

    /// Uses tokens. If they are more than were granted, the buckets get into debt.
    pub fn spend(&mut self, now: MonoTime, count: u64) {
        self.used = self.used.saturating_add(count);
        let granted = if self.waits.is_some() { 0 } else { self.credit.min(count) };
        self.credit -= granted;
        if granted < count {
            for usage in self.usages() {
                usage.bucket(self.flow).charge(now, count - granted);
            }
        }
    }

    /// Takes back tokens that the connection has [spent](Self::spend) and did not need.
    pub(super) fn unspend(&mut self, count: u64) {
        self.used = self.used.saturating_sub(count);
        if self.waits.is_some() {
            self.usages().for_each(|usage| usage.bucket(self.flow).give_back(count));
        } else {
            self.credit += count;
        }
    }

    /// Gives back what was granted and not used, because the connection has nothing more to do now.
    pub fn rest(&mut self) {
        if self.used > 0 {
            // Whoever waits has more to do than it could.
            let factor = if self.waits.is_some() { 2 } else { 1 };
            self.portion = self.used.saturating_mul(factor);
            self.used = 0;
        }
        if self.waits.is_none() {
            self.give_back();
        }
    }

    /// The rate that a quota of the flow allows, in tokens a second.
    pub(crate) fn limit(&self, quota: Quota) -> u64 {
        let is_of_user = quota == usage::quota(self.flow, true);
        let usage = if is_of_user { &self.user } else { &self.tenant };
        usage.as_ref().map_or(0, |usage| usage.bucket(self.flow).rate())
    }

    /// The time until which the connection has to wait.
    pub fn until(&self) -> Option<MonoTime> {
        self.waits.map(|wait| wait.until)
    }

    /// Returns the wait that has ended, once.
    pub fn take_ended(&mut self) -> Option<(Quota, Duration)> {
        self.ended.take()
    }

    /// Ends the wait before its tokens are there, because the quotas have changed. Returns a wait that was not reported.
    pub(crate) fn cut_short(&mut self, now: MonoTime) -> Option<(Quota, Duration)> {
        if let Some(wait) = self.waits.take() {
            self.ended = Some((wait.quota, now.since(wait.since)));
        }
        self.take_ended()
    }

    /// Takes tokens from all buckets, or from none.
    fn take(&self, now: MonoTime, least: u64, most: u64) -> u64 {
        let mut taken = most;
        for (index, usage) in self.usages().enumerate() {
            let here = usage.bucket(self.flow).borrow(now, least, taken, self.ahead);
            for before in self.usages().take(index) {
                before.bucket(self.flow).give_back(taken - here);
            }
            taken = here;
        }
        taken
    }

    /// Takes a place: charges for a portion, and waits until it is paid. Returns the quota that is the reason;
    /// `None` if nothing needs to be waited for.
    fn queue_up(&mut self, now: MonoTime, portion: u64) -> Option<Quota> {
        let mut longest = (Duration::ZERO, false);
        for (usage, of_user) in [(&self.tenant, false), (&self.user, true)] {
            if let Some(usage) = usage {
                longest = longest.max((usage.bucket(self.flow).charge(now, portion), of_user));
            }
        }
        self.credit = portion;
        let (wait, of_user) = longest;
        let wait = wait.saturating_sub(self.ahead);
        if wait.is_zero() {
            return None;
        }
        // Rounded up: before, the tokens would not be paid.
        let until = now.after(wait + Duration::from_nanos(999_999));
        let quota = usage::quota(self.flow, of_user);
        self.waits = Some(Wait { since: now, until, quota });
        Some(quota)
    }

    /// The portion to ask for.
    fn next_portion(&self, now: MonoTime) -> u64 {
        let debt = self.usages().map(|usage| usage.bucket(self.flow).debt(now)).max();
        let wait = debt.unwrap_or_default().saturating_sub(self.ahead);
        let waiting = wait.as_secs_f64() / LONG_QUEUE.as_secs_f64();
        let expected = match self.used {
            0 => self.portion,
            used => used.saturating_mul(2),
        };
        expected.min(self.tokens_in(PORTION.div_f64(1.0 + waiting))).max(1)
    }

    /// Tokens that the lowest rate gives in this time; at least 1.
    fn tokens_in(&self, time: Duration) -> u64 {
        let rates =
            self.usages().map(|usage| usage.bucket(self.flow).rate()).filter(|rate| *rate > 0);
        let tokens = |rate| u128::from(rate) * time.as_nanos() / Duration::from_secs(1).as_nanos();
        rates.min().map_or(u64::MAX, |rate| u64::try_from(tokens(rate)).unwrap_or(u64::MAX)).max(1)
    }

    fn usages(&self) -> impl Iterator<Item = &Arc<Usage>> {
        self.tenant.iter().chain(&self.user)
    }

    fn give_back(&mut self) {
        let unused = std::mem::take(&mut self.credit);
        if unused > 0 {
            self.usages().for_each(|usage| usage.bucket(self.flow).give_back(unused));
        }
    }
}

/// What was granted and not used is given back.
impl Drop for Pace {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(1_700_000_000_000 + millis)
    }

    fn usage(rate: u64) -> Arc<Usage> {
        Arc::new(Usage::new([rate; 4]))
    }

    fn pace(tenant: &Arc<Usage>, user: Option<&Arc<Usage>>) -> Pace {
        *Pace::new(Flow::Inbound, tenant, user).unwrap()
    }

    fn debt(usage: &Usage, now: MonoTime) -> u128 {
        usage.bucket(Flow::Inbound).debt(now).as_millis()
    }

    /// Uses up the tokens that a new bucket has.
    fn exhaust(usage: &Usage, now: MonoTime) {
        let bucket = usage.bucket(Flow::Inbound);
        bucket.charge(now, bucket.rate());
    }

    /// Asks and uses everything until it has to wait. Returns how much it used, and until when it waits.
    fn flood(pace: &mut Pace, now: MonoTime) -> (u64, MonoTime) {
        let mut used = 0;
        while let Pass::Go(tokens) = pace.ask(now, u64::MAX) {
            pace.spend(now, tokens);
            used += tokens;
        }
        pace.rest();
        (used, pace.until().expect("it waits"))
    }

    #[test]
    fn without_a_limit_there_is_no_pace() {
        let (none, some) = (usage(0), usage(5));
        let is_paced = |tenant, user| Pace::new(Flow::Publish, tenant, user).is_some();
        assert!(!is_paced(&none, None) && !is_paced(&none, Some(&none)));
        assert!(is_paced(&some, None) && is_paced(&none, Some(&some)));
    }

    #[test]
    fn it_waits_until_its_portion_is_paid_and_not_longer() {
        let tenant = usage(1_000);
        exhaust(&tenant, at(0));
        let mut pace = pace(&tenant, None);
        assert_eq!(pace.ask(at(0), 100), Pass::Begins(Quota::InboundBytesRate));
        assert_eq!(pace.until(), Some(at(1)), "a new connection asks for one token");
        assert_eq!(pace.ask(at(0), 100), Pass::Waits);
        assert_eq!(pace.ask(at(1), 100), Pass::Go(1));
        assert_eq!(pace.take_ended(), Some((Quota::InboundBytesRate, Duration::from_millis(1))));
        assert_eq!(pace.take_ended(), None);
    }

    #[test]
    fn portions_follow_what_is_used() {
        let tenant = usage(1_000);
        let mut flooding = pace(&tenant, None);
        let (used, mut now) = flood(&mut flooding, at(0));
        assert_eq!((used, now), (1_000, at(20)), "a burst, and then 20 ms at a time");
        for _ in 0..10 {
            let (used, until) = flood(&mut flooding, now);
            assert_eq!((used, until.since(now)), (20, PORTION));
            now = until;
        }
        let mut modest = pace(&tenant, None);
        for _ in 0..10 {
            assert!(matches!(modest.ask(now, 100), Pass::Begins(_)));
            now = modest.until().unwrap();
            assert_eq!(modest.ask(now, 100), Pass::Go(1));
            modest.spend(now, 1);
            modest.rest();
            exhaust_rest(&tenant, now);
        }
        // It is quiet for a moment, and has little to do then.
        assert_eq!(flooding.ask(now, 100), Pass::Go(20));
        flooding.spend(now, 3);
        flooding.rest();
        exhaust_rest(&tenant, now);
        assert!(matches!(flooding.ask(now, 100), Pass::Begins(_)));
        assert_eq!(flooding.until(), Some(now.after(Duration::from_millis(3))));
    }

    fn exhaust_rest(usage: &Usage, now: MonoTime) {
        usage.bucket(Flow::Inbound).take(now, 1, u64::MAX);
    }

    #[test]
    fn what_is_not_used_is_given_back() {
        let tenant = usage(1_000);
        let mut one = pace(&tenant, None);
        assert_eq!(one.ask(at(0), 10), Pass::Go(10));
        one.spend(at(0), 4);
        one.rest();
        assert_eq!(tenant.bucket(Flow::Inbound).take(at(0), 1, 10_000), 996);
        // One that waits keeps its place, but not when it ends.
        assert!(matches!(one.ask(at(0), 500), Pass::Begins(_)));
        one.rest();
        assert_eq!((one.until(), debt(&tenant, at(0))), (Some(at(4)), 4));
        drop(one);
        assert_eq!(debt(&tenant, at(0)), 0);
    }

    #[test]
    fn more_than_was_granted_is_a_debt() {
        let tenant = usage(1_000);
        let mut one = pace(&tenant, None);
        assert_eq!(one.ask(at(0), 10), Pass::Go(10));
        one.spend(at(0), 1_250);
        one.rest();
        assert_eq!(debt(&tenant, at(0)), 250);
        assert!(matches!(one.ask(at(0), 10), Pass::Begins(_)));
        // What must not be delayed does not use what the connection waits for.
        let before = one.credit;
        one.spend(at(0), 5);
        assert_eq!(one.credit, before);
    }

    #[test]
    fn what_was_not_needed_is_taken_back() {
        let tenant = usage(1_000);
        let mut one = pace(&tenant, None);
        assert_eq!(one.ask(at(0), 10), Pass::Go(10));
        one.spend(at(0), 8);
        one.unspend(5);
        assert_eq!((one.credit, one.used), (7, 3));
        one.rest();
        assert_eq!((one.portion, tenant.bucket(Flow::Inbound).take(at(0), 1, 9_999)), (3, 997));
        // Who waits has no more than its place.
        one.spend(at(0), 8);
        assert!(matches!(one.ask(at(0), 10), Pass::Begins(_)));
        let (credit, before) = (one.credit, debt(&tenant, at(0)));
        one.unspend(5);
        assert_eq!((one.credit, debt(&tenant, at(0))), (credit, before - 5));
    }

    #[test]
    fn both_the_tenant_and_the_user_must_have_tokens() {
        let (tenant, user, other) = (usage(1_000), usage(100), usage(100));
        let (mut of_user, mut of_other) = (pace(&tenant, Some(&user)), pace(&tenant, Some(&other)));
        let (used, until) = flood(&mut of_user, at(0));
        assert_eq!((used, until), (100, at(20)));
        assert_eq!(of_user.waits.unwrap().quota, Quota::UserInboundBytesRate);
        assert_eq!(flood(&mut of_other, at(0)).0, 100, "the other user has its own");
        assert!(matches!(of_user.ask(at(20), 10), Pass::Go(2)));
        of_user.spend(at(20), 2);
        of_user.rest();
        exhaust(&tenant, at(1_020));
        assert_eq!(of_user.ask(at(1_020), 1_000), Pass::Begins(Quota::InboundBytesRate));
        assert!(user.bucket(Flow::Inbound).take(at(1_020), 1, 100) > 0, "none were lost");
    }

    #[test]
    fn a_long_queue_makes_portions_small() {
        let tenant = usage(1_000_000);
        let mut all: Vec<_> = (0..1_000).map(|_| pace(&tenant, None)).collect();
        exhaust(&tenant, at(0));
        for pace in &mut all {
            pace.portion = u64::MAX;
            pace.ask(at(0), u64::MAX);
        }
        let last = all.last().unwrap().until().unwrap();
        assert!(last < at(1_500), "the last of a thousand waits {:?}", last.since(at(0)));
    }

    #[test]
    fn a_reload_in_which_the_rate_vanishes_lets_all_go_on() {
        let tenant = usage(10);
        exhaust(&tenant, at(0));
        let mut one = pace(&tenant, None);
        one.ask(at(0), 10);
        tenant.set_rates(at(0), [0; 4]);
        assert!(Pace::new(Flow::Inbound, &tenant, None).is_none());
        drop(one);
    }

    proptest! {
        /// Connections with any demand share a bucket. In no window they get more than the rate and a burst,
        /// and as long as there is demand they get no less than the rate.
        #[test]
        fn a_shared_rate_is_kept_and_used(
            rate in 50..20_000_u64,
            demands in proptest::collection::vec(prop_oneof![1..5_u64, 100..100_000_u64], 1..20),
        ) {
            let tenant = usage(rate);
            let mut paces: Vec<_> = demands.iter().map(|_| pace(&tenant, None)).collect();
            let mut sums = vec![0_u64];
            for millis in 0..4_000 {
                let now = at(millis);
                let mut used = 0;
                for (pace, demand) in paces.iter_mut().zip(&demands) {
                    if pace.until().is_some_and(|until| until > now) {
                        continue;
                    }
                    let mut wanted = *demand;
                    while wanted > 0
                        && let Pass::Go(tokens) = pace.ask(now, wanted)
                    {
                        pace.spend(now, tokens);
                        wanted -= tokens;
                        used += tokens;
                    }
                    pace.rest();
                }
                sums.push(sums.last().unwrap() + used);
            }
            for (begin, before) in sums.iter().enumerate().step_by(37) {
                for (end, after) in sums.iter().enumerate().skip(begin + 1).step_by(29) {
                    let most = rate + rate * (end - begin) as u64 / 1_000;
                    prop_assert!(after - before <= most, "{} in {begin}..{end}", after - before);
                }
            }
            let demand = demands.iter().sum::<u64>() * 1_000;
            if demand > 2 * rate {
                let got = sums[4_000] - sums[2_000];
                prop_assert!(got as f64 > 1.9 * rate as f64, "{got} in two seconds");
            }
        }
    }
}
