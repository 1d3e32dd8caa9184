//! Sessions that have ended, and whose subscriptions still have to leave the topic index.
//!
//! A session may have ten thousand subscriptions, and hundreds of such sessions may end at once. So they leave step by
//! step, between the turns of others. Meanwhile nobody sends to the session: it [has ended](crate::session::Session::has_ended).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::budget::Budget;
use crate::session::{Subscription, Subscriptions};
use crate::tenant::Tenant;

/// As many subscriptions as nearly every session has leave at once.
const FEW: usize = 32;

/// Steps of a turn for each subscription.
const STEPS: usize = 2;

/// The sessions whose subscriptions one thread takes out of the index, in the order in which they ended.
#[derive(Default)]
pub struct Departures(VecDeque<Departure>);

struct Departure {
    tenant: Arc<Tenant>,
    session: u64,
    rest: Box<dyn Iterator<Item = Subscription> + Send>,
}

impl Departures {
    /// Takes the subscriptions of a session that has ended out of the index: now if they are few, and with
    /// [`Self::go_on`] if not.
    pub fn begin(&mut self, tenant: &Arc<Tenant>, session: u64, subscriptions: Subscriptions) {
        let is_few = subscriptions.count() <= FEW;
        let (tenant, rest) = (Arc::clone(tenant), subscriptions.into_iter());
        let mut departure = Departure { tenant, session, rest };
        if is_few {
            while departure.step() {}
        } else {
            self.0.push_back(departure);
        }
    }

    /// Goes on, as far as the budget goes.
    pub fn go_on(&mut self, budget: &mut Budget) {
        while let Some(departure) = self.0.front_mut() {
            if !departure.step() {
                self.0.pop_front();
            } else if budget.spend(STEPS) {
                return;
            }
        }
    }

    /// How many sessions have subscriptions left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no session has subscriptions left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Departure {
    /// Takes out one. False: there was none left.
    fn step(&mut self) -> bool {
        let Some(subscription) = self.rest.next() else { return false };
        self.tenant.unsubscribe(&subscription.filter, self.session);
        true
    }
}
