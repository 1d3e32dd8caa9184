//! Removal of the subscriptions of ended sessions from the topic index.
//!
//! A session may have ten thousand subscriptions, and hundreds of such sessions may end at once. So their
//! subscriptions are removed in steps, between the turns of connections. Meanwhile no message is sent to such
//! a session, because it [has ended](crate::session::Session::has_ended).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::budget::Budget;
use crate::session::{Subscription, Subscriptions};
use crate::tenant::Tenant;

/// Maximum number of subscriptions that are removed at once. Nearly every session has fewer.
const FEW: usize = 32;

/// Steps of a turn for the removal of each subscription.
const STEPS: usize = 2;

/// The ended sessions whose subscriptions one thread still has to remove, in the order in which they ended.
#[derive(Default)]
pub struct Departures(VecDeque<Departure>);

struct Departure {
    tenant: Arc<Tenant>,
    session: u64,
    rest: Box<dyn Iterator<Item = Subscription> + Send>,
}

impl Departures {
    /// Removes the subscriptions of an ended session from the index: at once if they are few, and otherwise
    /// in [`Self::go_on`].
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

    /// Continues the removal until the budget is spent.
    pub fn go_on(&mut self, budget: &mut Budget) {
        while let Some(departure) = self.0.front_mut() {
            if !departure.step() {
                self.0.pop_front();
            } else if budget.spend(STEPS) {
                return;
            }
        }
    }

    /// Number of sessions that have subscriptions left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no session has subscriptions left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Departure {
    /// Removes one subscription. Returns false if there was none left.
    fn step(&mut self) -> bool {
        let Some(subscription) = self.rest.next() else { return false };
        self.tenant.unsubscribe(&subscription.filter, self.session);
        true
    }
}
