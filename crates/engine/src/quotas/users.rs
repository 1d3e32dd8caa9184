//! What each user of a tenant uses.

use std::sync::Arc;

use barid_core::time::MonoTime;
use hashbrown::HashMap;

use super::usage::{Rates, Usage};
use crate::sync::Mutex;

/// Number of users up to which unused entries are left to [`Users::sweep`]. Beyond, an entry is added only
/// after a sweep, so the memory stays in proportion to the users that are connected.
const SWEPT_FROM: usize = 1_024;

/// What each user of a tenant uses, as far as users have limits.
#[derive(Debug, Default)]
pub(super) struct Users(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_name: HashMap<Box<str>, Arc<Usage>>,
    rates: Rates,
    /// Number of users from which the next one is added only after a sweep.
    sweep_at: usize,
}

impl Users {
    /// Returns the usage of a user.
    pub fn of(&self, now: MonoTime, user: &str) -> Arc<Usage> {
        let mut state = self.0.lock();
        if let Some(usage) = state.by_name.get(user) {
            return Arc::clone(usage);
        }
        if state.by_name.len() >= state.sweep_at.max(SWEPT_FROM) {
            state.sweep(now);
        }
        let usage = Arc::new(Usage::new(state.rates));
        state.by_name.insert(user.into(), Arc::clone(&usage));
        usage
    }

    /// Returns the usage of a user that has one.
    #[cfg(test)]
    pub fn get(&self, user: &str) -> Option<Arc<Usage>> {
        self.0.lock().by_name.get(user).cloned()
    }

    /// Changes the rates of each user.
    pub fn set_rates(&self, now: MonoTime, rates: Rates) {
        let mut state = self.0.lock();
        state.rates = rates;
        state.by_name.values().for_each(|usage| usage.set_rates(now, rates));
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

impl State {
    fn sweep(&mut self, now: MonoTime) {
        self.by_name.retain(|_, usage| Arc::strong_count(usage) > 1 || !usage.is_rested(now));
        self.by_name.shrink_to(2 * self.by_name.len());
        self.sweep_at = 2 * self.by_name.len();
    }
}
