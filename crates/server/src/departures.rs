//! Sessions that have ended, and whose subscriptions still have to leave the topic index.
//!
//! A session may have ten thousand subscriptions, and hundreds of such sessions may end at once. So they leave step by
//! step, between the turns of others. Meanwhile nobody sends to the session: it [has ended](crate::session::Session::has_ended).

use std::collections::VecDeque;

use crate::budget::Budget;
use crate::lifecycle::unsubscribe;
use crate::session::{SessionRef, Subscription, Subscriptions};

/// As many subscriptions as nearly every session has leave at once.
const FEW: usize = 32;

/// Steps of a turn for each subscription.
const STEPS: usize = 2;

/// The sessions whose subscriptions one thread takes out of the index, in the order in which they ended.
#[derive(Default)]
pub struct Departures(VecDeque<Departure>);

struct Departure {
    session: SessionRef,
    rest: Box<dyn Iterator<Item = Subscription> + Send>,
}

impl Departures {
    /// Takes the subscriptions of a session that has ended out of the index: now if they are few, and with
    /// [`Self::go_on`] if not.
    pub fn begin(&mut self, session: &SessionRef, subscriptions: Subscriptions) {
        let is_few = subscriptions.len() <= FEW;
        let session = session.clone();
        let mut departure = Departure { session, rest: subscriptions.into_iter() };
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
        unsubscribe(&self.session.tenant, &subscription.filter, self.session.id);
        true
    }
}
