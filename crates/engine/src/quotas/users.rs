//! What each user of a tenant uses.

use std::sync::Arc;

use barid_core::time::MonoTime;
use hashbrown::HashMap;

use super::usage::{self, Rates, Usage};
use crate::sync::Mutex;
use crate::user_limits::UserLimits;

/// Number of users up to which unused entries are left to [`Users::sweep`]. Beyond, an entry is added only
/// after a sweep, so the memory stays in proportion to the users that are connected.
const SWEPT_FROM: usize = 1_024;

/// What each user of a tenant uses, as far as users have limits.
#[derive(Debug, Default)]
pub(super) struct Users(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<Box<str>, User>,
    /// The rates of a user that has none of its own.
    rates: Rates,
    /// Number of users from which the next one is added only after a sweep.
    sweep_at: usize,
}

#[derive(Debug)]
struct User {
    usage: Arc<Usage>,
    /// The limits of the user; `None`: it has none of its own.
    own: Option<Box<UserLimits>>,
}

impl Users {
    /// Returns the usage of a user, and its own limits. `own`: the limits that it has now; `None`: those that it had.
    pub fn of(
        &self,
        now: MonoTime,
        user: &str,
        own: Option<&UserLimits>,
    ) -> (Arc<Usage>, UserLimits) {
        let mut state = self.0.lock();
        let rates = state.rates;
        if let Some(known) = state.by_name.get_mut(user) {
            if let Some(own) = own {
                known.set_own(now, own, rates);
            }
            return (Arc::clone(&known.usage), *known.own());
        }
        if state.by_name.len() >= state.sweep_at.max(SWEPT_FROM) {
            state.sweep(now);
        }
        let own = own.copied().unwrap_or_default();
        let usage = Arc::new(Usage::new(usage::with_own(rates, &own)));
        let boxed = (!own.are_none()).then(|| Box::new(own));
        state.by_name.insert(user.into(), User { usage: Arc::clone(&usage), own: boxed });
        (usage, own)
    }

    /// Returns the usage of a user that has one.
    #[cfg(test)]
    pub fn get(&self, user: &str) -> Option<Arc<Usage>> {
        self.0.lock().by_name.get(user).map(|user| Arc::clone(&user.usage))
    }

    /// Changes the rates of each user that has none of its own.
    pub fn set_rates(&self, now: MonoTime, rates: Rates) {
        let mut state = self.0.lock();
        state.rates = rates;
        state.by_name.values().for_each(|user| user.set_rates(now, rates));
    }

    /// Forgets users that have no connection and whose buckets are full: a user that comes back gets no more
    /// than if it had been remembered.
    pub fn sweep(&self, now: MonoTime) {
        self.0.lock().sweep(now);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().by_name.len()
    }
}

impl User {
    fn own(&self) -> &UserLimits {
        self.own.as_deref().unwrap_or(&UserLimits::NONE)
    }

    fn set_own(&mut self, now: MonoTime, own: &UserLimits, rates: Rates) {
        if self.own() != own {
            self.own = (!own.are_none()).then(|| Box::new(*own));
            self.set_rates(now, rates);
            self.usage.has_other_limits();
        }
    }

    fn set_rates(&self, now: MonoTime, rates: Rates) {
        self.usage.set_rates(now, usage::with_own(rates, self.own()));
    }
}

impl State {
    fn sweep(&mut self, now: MonoTime) {
        self.by_name
            .retain(|_, User { usage, .. }| Arc::strong_count(usage) > 1 || !usage.is_rested(now));
        self.by_name.shrink_to(2 * self.by_name.len());
        self.sweep_at = 2 * self.by_name.len();
    }
}
