//! Quotas of connections and rates: for each tenant, and for each of its users; and the users as holders of what
//! outlives connections.
//!
//! A connection is admitted with a [`Permit`], and keeps a [`Metered`] with the permit and its pace in each
//! direction. Without a limit there is no pace, and nothing is counted. A user may have limits of its own.

mod bucket;
mod elsewhere;
mod holders;
mod metered;
mod pace;
mod usage;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use barid_core::holder::Holder;
use barid_core::time::MonoTime;
use barid_peers::RATES;

use crate::limits::{Limits, Quota};
use crate::user_limits::UserLimits;
use holders::Holders;
use usage::{Place, quota};
use users::Users;

pub use elsewhere::Elsewhere;
pub use metered::Metered;
pub use pace::{Pace, Pass};
pub use usage::{Flow, Usage};

/// Minimum time between two log lines about one quota of one tenant.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Debt of a bucket, as the time in which its rate pays for it, up to which CONNECT is accepted and packets are
/// answered. A tenant at its limit always has a debt: that of the places that its connections have taken, about
/// 20 ms for one that waits and 1 s for 500. Clients that only connect or publish must not notice these.
const DEBT_MAX: Duration = Duration::from_secs(1);

/// The quotas of a tenant that limit connections and rates, and what is used of them.
#[derive(Debug)]
pub struct Quotas {
    usage: Arc<Usage>,
    users: Users,
    elsewhere: Arc<Elsewhere>,
    holders: Holders,
    /// Incremented when any limit changes, so that connected clients get the new ones.
    version: AtomicU32,
    /// For each quota, the time of its last log line, in milliseconds; 0: there was none.
    told: [AtomicU64; Quota::ALL.len()],
}

/// The right to have a connection, which counts against the quotas of a tenant and of a user. Given back when
/// dropped.
#[derive(Debug)]
pub struct Permit {
    tenant: Place,
    /// `None`: the users of the tenant had no limits.
    user: Option<Place>,
}

impl Permit {
    /// Pays for a CONNECT of so many bytes, with so many messages: 1 if it has a will. For AMQP, whose bytes are
    /// counted later, it has none of both.
    ///
    /// It is accepted although the buckets have too few tokens, unless one is in debt by more than [`DEBT_MAX`].
    /// So no bucket gets further into debt than this and one CONNECT, however often a client connects.
    ///
    /// # Errors
    /// The quota that refuses the CONNECT. Nothing has been paid.
    pub fn pay(&self, now: MonoTime, bytes: usize, messages: u64) -> Result<(), Quota> {
        let costs = [(Flow::Inbound, bytes as u64), (Flow::Publish, messages)];
        let costs = costs.into_iter().filter(|(flow, count)| *flow == Flow::Inbound || *count > 0);
        let of_user = self.user.iter().map(|place| (place.usage(), true));
        let usages = of_user.chain([(self.tenant.usage(), false)]);
        for (usage, of_user) in usages.clone() {
            for (flow, _) in costs.clone() {
                if usage.bucket(flow).debt(now) > DEBT_MAX {
                    return Err(quota(flow, of_user));
                }
            }
        }
        for (usage, _) in usages {
            for (flow, count) in costs.clone() {
                usage.bucket(flow).charge(now, count);
            }
        }
        Ok(())
    }
}

impl Quotas {
    /// Creates the quotas of a tenant, of which nothing is used here.
    pub fn new(limits: &Limits, elsewhere: Arc<Elsewhere>) -> Self {
        let users = Users::default();
        users.set_rates(MonoTime::default(), usage::of_user(limits));
        Self {
            usage: Arc::new(Usage::new(usage::of_tenant(limits))),
            users,
            elsewhere,
            holders: Holders::default(),
            version: AtomicU32::new(0),
            told: [const { AtomicU64::new(0) }; Quota::ALL.len()],
        }
    }

    /// Changes the limits from `before` to `after`. Returns whether connections must be woken: some that wait
    /// may go on, or others have to wait.
    pub fn set(&self, now: MonoTime, before: &Limits, after: &Limits) -> bool {
        if before == after {
            return false;
        }
        let decisive = |limits: &Limits| {
            let rates = (usage::of_tenant(limits), usage::of_user(limits), limits.are_of_users());
            (rates, limits.max_inflight, limits.max_queued_bytes, limits.max_user_queued_bytes)
        };
        let wakes = decisive(before) != decisive(after);
        self.usage.set_rates(now, usage::of_tenant(after));
        self.users.set_rates(now, usage::of_user(after));
        self.version.fetch_add(1, Ordering::Release);
        wakes
    }

    /// A number that changes when a connection has to call [`Metered::refresh`], and has to use new limits.
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// What the tenant uses at this broker.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What it uses at other brokers.
    pub fn elsewhere(&self) -> &Elsewhere {
        &self.elsewhere
    }

    /// The tenant has used so much of its rates at another broker, by [`Flow`]; if negative, given back.
    pub(crate) fn has_spent_elsewhere(&self, now: MonoTime, spent: [i64; RATES]) {
        self.usage.has_spent_elsewhere(now, spent);
    }

    /// What a user of the tenant uses, if its users have limits and it was connected lately.
    #[cfg(test)]
    fn usage_of(&self, user: &str) -> Option<Arc<Usage>> {
        self.users.get(user)
    }

    /// Admits a connection of a user. A client that `comes_back` while its old connection still exists does
    /// not need another place. `own`: the limits that the user has now, which replace those that it had; `None`: the
    /// client has not proved to be a user.
    ///
    /// # Errors
    /// The quota that has no room.
    pub fn admit(
        &self,
        now: MonoTime,
        limits: &Limits,
        (user, own): (&str, Option<&UserLimits>),
        comes_back: bool,
    ) -> Result<Permit, Quota> {
        let no_room = |most: u64, before: usize| most > 0 && before as u64 >= most && !comes_back;
        // The quotas of the user come first: what they refuse must not use up those of the tenant.
        let mut place_of_user = None;
        if limits.are_of_users() || own.is_some_and(UserLimits::are_of_connections) {
            let (usage, own) = self.users.of(now, user, own);
            if usage.bucket(Flow::Connect).take(now, 1, 1) == 0 {
                return Err(Quota::UserConnectRate);
            }
            let (place, before) = Place::take(&usage);
            let most = own.max_connections.unwrap_or(limits.max_user_connections as u64);
            if no_room(most, before) {
                return Err(Quota::MaxUserConnections);
            }
            place_of_user = Some(place);
        }
        if self.usage.bucket(Flow::Connect).take(now, 1, 1) == 0 {
            return Err(Quota::ConnectRate);
        }
        let (tenant, before) = Place::take(&self.usage);
        let before = before.saturating_add(self.elsewhere.connections());
        if no_room(limits.max_connections as u64, before) {
            return Err(Quota::MaxConnections);
        }
        Ok(Permit { tenant, user: place_of_user })
    }

    /// Returns the user of this name, as the one to whom sessions, retained messages and keys belong.
    pub fn holder(&self, user: &str) -> Arc<Holder> {
        self.holders.of(user)
    }

    /// Returns the user of this name, if something belongs to it or it is connected.
    pub fn known_holder(&self, user: &str) -> Option<Arc<Holder>> {
        self.holders.get(user)
    }

    /// Whether a log line about a quota is due. If so, the next one is due in [`TOLD_EVERY`].
    pub fn tells(&self, now: MonoTime, quota: Quota) -> bool {
        let told = &self.told[quota as usize];
        let before = told.load(Ordering::Relaxed);
        let is_due = now.since(MonoTime::from_millis(before)) >= TOLD_EVERY;
        let order = Ordering::Relaxed;
        is_due && told.compare_exchange(before, now.as_millis(), order, order).is_ok()
    }

    /// Forgets users that use nothing.
    pub fn sweep(&self, now: MonoTime) {
        self.users.sweep(now);
        self.holders.sweep();
    }
}

#[cfg(test)]
mod tests {
    use barid_peers::Used;
    use proptest::prelude::*;

    use super::*;

    /// The quotas of a tenant that uses nothing elsewhere.
    fn alone(limits: &Limits) -> Quotas {
        Quotas::new(limits, Arc::default())
    }

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(1_700_000_000_000 + millis)
    }

    fn limits() -> Limits {
        Limits {
            max_connections: 3,
            max_user_connections: 2,
            connect_rate: 10,
            user_connect_rate: 5,
            ..Limits::default()
        }
    }

    #[test]
    fn a_permit_is_given_back_when_it_is_dropped() {
        let (limits, now) = (limits(), at(0));
        let quotas = alone(&limits);
        let admit = |user: &str, comes_back| quotas.admit(now, &limits, (user, None), comes_back);
        let first = admit("ada", false).unwrap();
        let second = admit("ada", false).unwrap();
        assert_eq!(admit("ada", false).unwrap_err(), Quota::MaxUserConnections);
        let third = admit("bob", false).unwrap();
        assert_eq!(admit("bob", false).unwrap_err(), Quota::MaxConnections);
        assert_eq!(quotas.usage().connections(), 3, "refusals take no place");
        assert_eq!(quotas.usage_of("bob").unwrap().connections(), 1);
        let again = admit("ada", true).unwrap();
        assert_eq!(quotas.usage().connections(), 4, "it takes the place of one that ends now");
        drop((first, second, third, again));
        assert_eq!(quotas.usage().connections(), 0);
        assert_eq!(quotas.usage_of("ada").unwrap().connections(), 0);
    }

    #[test]
    fn what_is_used_at_other_brokers_counts() {
        let limits = limits();
        let elsewhere = Arc::<Elsewhere>::default();
        let quotas = Quotas::new(&limits, Arc::clone(&elsewhere));
        let limits = Limits { max_user_connections: 0, user_connect_rate: 0, ..limits };
        let admit = |millis| quotas.admit(at(millis), &limits, ("", None), false);
        let _first = admit(0).unwrap();
        let two = Used { connections: 2, ..Used::default() };
        elsewhere.change(&Used::default(), &two);
        assert_eq!(admit(1_000).unwrap_err(), Quota::MaxConnections);
        elsewhere.change(&two, &Used::default());
        let _second = admit(1_000).unwrap();
        assert_eq!(quotas.usage().spent(), [0, 0, 0, 3], "refusals count as well");
        quotas.has_spent_elsewhere(at(1_000), [0, 0, 0, 10 + 5]);
        assert_eq!(admit(1_000).unwrap_err(), Quota::ConnectRate);
        assert_eq!(quotas.usage().spent(), [0, 0, 0, 3]);
    }

    #[test]
    fn a_user_that_is_refused_uses_up_nothing_of_the_tenant() {
        let (limits, quotas) = (limits(), alone(&limits()));
        let admit =
            |user: &str, millis| quotas.admit(at(millis), &limits, (user, None), false).map(drop);
        for _ in 0..5 {
            admit("ada", 0).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(admit("ada", 0), Err(Quota::UserConnectRate));
        }
        for _ in 0..5 {
            admit("bob", 0).unwrap();
        }
        assert_eq!(admit("eve", 0), Err(Quota::ConnectRate));
        assert_eq!(admit("eve", 100), Ok(()));
        assert_eq!(admit("eve", 100), Err(Quota::ConnectRate));
    }

    #[test]
    fn without_limits_users_are_not_remembered() {
        let limits = Limits::default();
        let quotas = alone(&limits);
        let permit = quotas.admit(at(0), &limits, ("ada", None), false).unwrap();
        assert!(quotas.usage_of("ada").is_none());
        let mut metered = Metered::new(&quotas, permit, "ada");
        assert!(metered.messages.is_none() && metered.outbound().is_none());
        // Limits that come later count the connections that are there.
        let later = Limits { max_user_connections: 1, user_publish_rate: 7, ..Limits::default() };
        quotas.set(at(0), &limits, &later);
        assert!(metered.is_outdated(&quotas));
        metered.refresh(at(0), &quotas, || Arc::new(later.clone()));
        assert!(metered.messages.is_some() && metered.bytes.is_none());
        assert!(!metered.is_outdated(&quotas));
        assert_eq!(
            quotas.admit(at(0), &later, ("ada", None), false).unwrap_err(),
            Quota::MaxUserConnections
        );
        drop(metered);
        quotas.admit(at(0), &later, ("ada", None), false).unwrap();
    }

    #[test]
    fn a_change_ends_waits_and_keeps_debts() {
        let before = Limits { publish_rate: 10, ..Limits::default() };
        let quotas = alone(&before);
        let permit = quotas.admit(at(0), &before, ("", None), false).unwrap();
        let mut metered = Metered::new(&quotas, permit, "");
        let messages = metered.messages.as_mut().unwrap();
        messages.spend(at(0), 10 + 50);
        assert!(matches!(messages.ask(at(0), 1), Pass::Begins(Quota::PublishRate)));
        assert_eq!(metered.waits_until(), Some(at(5_100)));
        let after = Limits { publish_rate: 1_000, ..Limits::default() };
        quotas.set(at(0), &before, &after);
        metered.refresh(at(0), &quotas, Arc::default);
        assert_eq!(metered.waits_until(), None);
        let messages = metered.messages.as_mut().unwrap();
        assert!(matches!(messages.ask(at(0), 1), Pass::Begins(Quota::PublishRate)));
        assert_eq!(metered.waits_until(), Some(at(51)), "fifty messages are still to be paid");
        let unlimited = Limits::default();
        quotas.set(at(0), &after, &unlimited);
        metered.refresh(at(0), &quotas, Arc::default);
        assert!(metered.messages.is_none() && !metered.waits(at(0)));
    }

    #[test]
    fn all_changes_are_noticed_and_those_of_rates_wake() {
        let before = Limits::default();
        let quotas = alone(&before);
        let mut version = quotas.version();
        for (after, wakes) in [
            (Limits { max_subscriptions: 1, ..Limits::default() }, false),
            (Limits { max_inflight: 1, ..Limits::default() }, true),
            (Limits { user_publish_rate: 1, ..Limits::default() }, true),
        ] {
            assert_eq!(quotas.set(at(0), &before, &after), wakes, "{after:?}");
            assert_ne!(std::mem::replace(&mut version, quotas.version()), version);
            quotas.set(at(0), &after, &before);
            version = quotas.version();
        }
        assert!(!quotas.set(at(0), &before, &before.clone()));
        assert_eq!(quotas.version(), version, "nothing has changed");
    }

    fn own_rate(publish_rate: u64) -> UserLimits {
        UserLimits { publish_rate: Some(publish_rate), ..UserLimits::NONE }
    }

    #[test]
    fn own_limits_of_a_user_replace_those_of_every_user() {
        let limits = Limits {
            max_user_connections: 3,
            user_connect_rate: 2,
            user_publish_rate: 7,
            ..Limits::default()
        };
        let quotas = alone(&limits);
        let own = UserLimits {
            max_connections: Some(1),
            connect_rate: Some(0),
            publish_rate: Some(100),
            ..UserLimits::NONE
        };
        let admit = |user, own| quotas.admit(at(0), &limits, (user, Some(own)), false);
        let ada = admit("ada", &own).unwrap();
        for _ in 0..9 {
            assert_eq!(admit("ada", &own).unwrap_err(), Quota::MaxUserConnections, "no rate");
        }
        let bobs = [0; 2].map(|_| admit("bob", &UserLimits::NONE).unwrap());
        assert_eq!(admit("bob", &UserLimits::NONE).unwrap_err(), Quota::UserConnectRate);
        let rate = |user| quotas.usage_of(user).unwrap().bucket(Flow::Publish).rate();
        assert_eq!((rate("ada"), rate("bob")), (100, 7));
        // A change for every user leaves what is of one user.
        let later = Limits { user_publish_rate: 9, ..limits.clone() };
        quotas.set(at(0), &limits, &later);
        assert_eq!((rate("ada"), rate("bob")), (100, 9));
        // Another client of the same name, such as a key of AMQP, does not take the limits away.
        quotas.admit(at(0), &limits, ("ada", None), true).unwrap();
        assert_eq!(rate("ada"), 100);
        admit("ada", &UserLimits::NONE).expect("the user has none of its own any more");
        assert_eq!(rate("ada"), 9);
        drop((ada, bobs));
    }

    #[test]
    fn own_limits_are_applied_where_no_other_user_has_any() {
        let limits = Limits::default();
        let quotas = alone(&limits);
        let connect = |user, own: UserLimits| {
            let permit = quotas.admit(at(0), &limits, (user, Some(&own)), false).unwrap();
            Metered::new(&quotas, permit, user)
        };
        let mut ada = connect("ada", own_rate(10));
        let bob = connect("bob", UserLimits::NONE);
        assert!(quotas.usage_of("bob").is_none() && bob.messages.is_none());
        let messages = ada.messages.as_mut().unwrap();
        assert_eq!(messages.limit(Quota::UserPublishRate), 10);
        messages.spend(at(0), 20);
        assert!(matches!(messages.ask(at(0), 1), Pass::Begins(Quota::UserPublishRate)));
        assert!(ada.bytes.is_none() && ada.outbound().is_none());
    }

    #[test]
    fn own_limits_change_for_all_connections_of_the_user() {
        let limits = Limits::default();
        let quotas = alone(&limits);
        let connect = |own: &UserLimits| {
            let permit = quotas.admit(at(0), &limits, ("ada", Some(own)), false).unwrap();
            Metered::new(&quotas, permit, "ada")
        };
        let [mut first, mut second] = [connect(&own_rate(10)), connect(&own_rate(10))];
        first.messages.as_mut().unwrap().spend(at(0), 10 + 50);
        for metered in [&mut first, &mut second] {
            assert!(matches!(metered.messages.as_mut().unwrap().ask(at(0), 1), Pass::Begins(_)));
            assert!(!metered.set_own(at(0), &quotas, &own_rate(10)), "as they were");
        }
        assert!(second.waits_until().unwrap() >= at(5_000));
        assert!(first.set_own(at(0), &quotas, &own_rate(1_000)));
        assert!(second.is_outdated(&quotas), "it notices in its next turn");
        assert!(second.set_own(at(0), &quotas, &own_rate(1_000)), "it is woken all the same");
        for metered in [&mut first, &mut second] {
            metered.refresh(at(0), &quotas, Arc::default);
            assert!(!metered.is_outdated(&quotas) && metered.waits_until().is_none());
        }
        assert!(matches!(second.messages.as_mut().unwrap().ask(at(0), 1), Pass::Begins(_)));
        assert!(second.waits_until().unwrap() < at(60), "the debt is the same number of messages");
        assert!(first.set_own(at(0), &quotas, &UserLimits::NONE));
        for metered in [&mut first, &mut second] {
            metered.refresh(at(0), &quotas, Arc::default);
            assert!(metered.messages.is_none() && !metered.waits(at(0)));
        }
    }

    #[test]
    fn connections_count_that_were_there_before_the_own_limits() {
        let limits = Limits::default();
        let quotas = alone(&limits);
        let admit = |own: &UserLimits| quotas.admit(at(0), &limits, ("ada", Some(own)), false);
        let mut there = Metered::new(&quotas, admit(&UserLimits::NONE).unwrap(), "ada");
        assert!(!there.set_own(at(0), &quotas, &UserLimits::NONE));
        assert!(quotas.usage_of("ada").is_none(), "who has no limits is not remembered");
        let own =
            UserLimits { max_connections: Some(1), outbound_bytes_rate: Some(5), ..own_rate(7) };
        assert!(there.set_own(at(0), &quotas, &own));
        there.refresh(at(0), &quotas, Arc::default);
        assert!(there.messages.is_some() && there.outbound().is_some() && there.bytes.is_none());
        assert_eq!(admit(&own).unwrap_err(), Quota::MaxUserConnections);
        drop(there);
        let permit = admit(&own).unwrap();
        drop(permit);
        quotas.sweep(at(200));
        assert!(quotas.usage_of("ada").is_none(), "its limits come with its next login");
    }

    fn rates_of_bytes() -> Limits {
        Limits {
            inbound_bytes_rate: 100_000,
            user_inbound_bytes_rate: 20_000,
            outbound_bytes_rate: 100_000,
            user_outbound_bytes_rate: 10_000,
            publish_rate: 10,
            user_publish_rate: 5,
            ..Limits::default()
        }
    }

    fn debt(quotas: &Quotas, flow: Flow, millis: u64) -> u128 {
        quotas.usage().bucket(flow).debt(at(millis)).as_millis()
    }

    #[test]
    fn large_connects_of_a_user_leave_the_tenant_to_others() {
        let (limits, quotas) = (rates_of_bytes(), alone(&rates_of_bytes()));
        let pay = |user: &str, millis, bytes| {
            let permit = quotas.admit(at(millis), &limits, (user, None), false).unwrap();
            permit.pay(at(millis), bytes, 0)
        };
        pay("eve", 0, 60_000).unwrap();
        for millis in 0..1_000 {
            assert_eq!(pay("eve", millis, 60_000), Err(Quota::UserInboundBytesRate));
            assert_eq!(debt(&quotas, Flow::Inbound, millis), 0);
        }
        pay("bob", 999, 60_000).unwrap();
        pay("eve", 1_000, 60_000).expect("a second of debt is left");
        assert_eq!(pay("eve", 1_000, 60_000), Err(Quota::UserInboundBytesRate));
        // Many users use up the tenant, with one CONNECT more than a second of debt.
        let mut users = (0..).map(|user| pay(&user.to_string(), 1_000, 60_000));
        assert_eq!(users.find_map(Result::err), Some(Quota::InboundBytesRate));
        assert!((1_001..1_600).contains(&debt(&quotas, Flow::Inbound, 1_000)));
        assert_eq!(pay("joe", 1_000, 1), Err(Quota::InboundBytesRate));
        let joe = quotas.usage_of("joe").unwrap();
        assert_eq!(joe.bucket(Flow::Inbound).take(at(1_000), 1, 90_000), 20_000, "nothing is paid");
    }

    #[test]
    fn a_will_is_a_message() {
        let (limits, quotas) = (rates_of_bytes(), alone(&rates_of_bytes()));
        let admit = |millis| quotas.admit(at(millis), &limits, ("eve", None), false).unwrap();
        let accepted = (0..3_000).filter(|millis| admit(*millis).pay(at(*millis), 9, 1).is_ok());
        let accepted = accepted.count();
        assert!((20..=26).contains(&accepted), "{accepted} for a burst, a debt, and three seconds");
        assert_eq!(admit(2_999).pay(at(2_999), 9, 1), Err(Quota::UserPublishRate));
        admit(2_999).pay(at(2_999), 9, 0).expect("without a will it goes on");
    }

    #[test]
    fn answers_are_counted_and_come_at_the_rate() {
        let (limits, quotas) = (rates_of_bytes(), alone(&rates_of_bytes()));
        let connect = |user| {
            let permit = quotas.admit(at(0), &limits, (user, None), false).unwrap();
            Metered::new(&quotas, permit, user)
        };
        let mut eves: Vec<_> = (0..50).map(|_| connect("eve")).collect();
        let mut answered = 0;
        for millis in 0..3_000 {
            let now = at(millis);
            for eve in eves.iter_mut().filter_map(|eve| (!eve.waits(now)).then_some(eve)) {
                let mut bytes = 0;
                while matches!(eve.answers.as_mut().unwrap().ask(now, 1_000), Pass::Go(_)) {
                    bytes += 2;
                    eve.has_answered(now, bytes);
                }
                eve.end_answers(now, bytes);
                assert!(eve.waits_until().is_some(), "it is not read from");
                answered += bytes;
            }
            assert_eq!(debt(&quotas, Flow::Outbound, millis), 0, "others have their messages");
        }
        assert!((48_000..=51_000).contains(&answered), "{answered} bytes");
    }

    #[test]
    fn answers_do_not_wait_for_the_places_of_messages() {
        let (limits, quotas) = (rates_of_bytes(), alone(&rates_of_bytes()));
        let permit = quotas.admit(at(0), &limits, ("ada", None), false).unwrap();
        let mut ada = Metered::new(&quotas, permit, "ada");
        let mut messages = ada.outbound().unwrap();
        messages.spend(at(0), 10_000 + 9_000);
        assert!(matches!(messages.ask(at(0), 100), Pass::Begins(_)));
        let answers = ada.answers.as_mut().unwrap();
        assert!(matches!(answers.ask(at(0), 100), Pass::Go(_)), "0.9 s of debt");
        answers.rest();
        messages.spend(at(0), 2_000);
        assert_eq!(answers.ask(at(0), 100), Pass::Begins(Quota::UserOutboundBytesRate));
        let until = ada.waits_until().unwrap();
        assert!((at(100)..at(120)).contains(&until), "{until:?}: until a second of debt is left");
    }

    proptest! {
        /// Whoever connects, and however large the CONNECT is: no bucket gets further into debt than a second and
        /// one CONNECT, and who is refused has paid nothing.
        #[test]
        fn connects_bring_no_bucket_further_into_debt_than_one_of_them(
            rates in (1..5_000_u64, 1..5_000_u64),
            connects in proptest::collection::vec((0..3_u8, 0..900_u64, 1..20_000_usize), 1..60),
        ) {
            let limits = Limits {
                inbound_bytes_rate: rates.0,
                user_inbound_bytes_rate: rates.1,
                ..Limits::default()
            };
            let quotas = alone(&limits);
            let (mut now, mut paid) = (0, 0);
            for (user, pause, bytes) in &connects {
                now += pause;
                let user = user.to_string();
                let permit = quotas.admit(at(now), &limits, (&user, None), false).unwrap();
                let of_user = quotas.usage_of(&user).unwrap();
                let debts = || {
                    [(quotas.usage(), rates.0), (&of_user, rates.1)]
                        .map(|(usage, rate)| (usage.bucket(Flow::Inbound).debt(at(now)), rate))
                };
                let before = debts();
                let result = permit.pay(at(now), *bytes, 0);
                paid += if result.is_ok() { *bytes as u64 } else { 0 };
                prop_assert_eq!(
                    result.is_ok(),
                    before.iter().all(|(debt, _)| *debt <= DEBT_MAX)
                );
                if result.is_err() {
                    prop_assert_eq!(debts(), before);
                }
                for (debt, rate) in debts() {
                    let packet = Duration::from_secs_f64(*bytes as f64 / rate as f64);
                    let most = DEBT_MAX.max(before.iter().map(|(debt, _)| *debt).max().unwrap());
                    prop_assert!(debt <= most + packet + Duration::from_micros(1), "{debt:?}");
                }
            }
            let most = rates.0 * (now + 2_000) / 1_000 + 20_000;
            prop_assert!(paid <= most, "{paid} bytes in {now} ms");
        }
    }

    #[test]
    fn users_are_forgotten_when_they_use_nothing() {
        let limits = limits();
        let quotas = alone(&limits);
        let permit = quotas.admit(at(0), &limits, ("ada", None), false).unwrap();
        drop(quotas.admit(at(0), &limits, ("bob", None), false).unwrap());
        quotas.sweep(at(0));
        assert_eq!(quotas.users.len(), 2, "the connection of bob is not paid for");
        quotas.sweep(at(201));
        assert!(quotas.usage_of("bob").is_none() && quotas.usage_of("ada").is_some());
        drop(permit);
        quotas.sweep(at(201));
        assert_eq!(quotas.users.len(), 0);
        for user in 0..100_000_u64 {
            let _ = quotas.admit(at(user), &limits, (&user.to_string(), None), false);
        }
        assert!(quotas.users.len() < 10_000, "{} users", quotas.users.len());
    }

    #[test]
    fn a_quota_is_told_every_ten_seconds() {
        let quotas = alone(&Limits::default());
        let tells = |millis| quotas.tells(at(millis), Quota::MaxSessions);
        assert!(tells(0) && !tells(0) && !tells(9_999));
        assert!(quotas.tells(at(9_999), Quota::MaxEntities));
        assert!(tells(10_000) && !tells(10_001));
    }
}
