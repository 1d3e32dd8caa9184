//! Requests to the state store that another broker carries out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::durable::Commits;

/// Counts the requests of one connection that another broker carries out, and how many of them are answered. That broker
/// answers them in their order.
///
/// A client is read from only as fast as it is answered: responses may be much larger than requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// Changed by the thread that has the connection, and by no other one.
    sent: AtomicU64,
    answered: AtomicU64,
    /// The place of the broker that was asked last.
    home: AtomicU8,
}

/// Number of unanswered requests of a client from which on it is not read from.
const UNANSWERED_MAX: u64 = 16;

impl Requests {
    /// Number of requests that are not answered.
    pub(crate) fn unanswered(&self) -> u64 {
        // First what can never become more than the other one.
        let answered = self.answered.load(Ordering::SeqCst);
        self.sent.load(Ordering::SeqCst).saturating_sub(answered)
    }

    /// Whether so many are unanswered that the client is not to be read from.
    pub(crate) fn are_many(&self) -> bool {
        self.unanswered() >= UNANSWERED_MAX
    }

    /// Whether the broker at this place has not answered all of them.
    pub(crate) fn wait_for(&self, place: u8) -> bool {
        self.unanswered() > 0 && self.home.load(Ordering::SeqCst) == place
    }

    /// A request is sent to the broker at a place. Returns false if another one has not answered all that was sent to it:
    /// answers of two brokers have no order.
    #[must_use]
    pub(crate) fn send(&self, place: u8) -> bool {
        let may = self.unanswered() == 0 || self.home.load(Ordering::SeqCst) == place;
        if may {
            self.home.store(place, Ordering::SeqCst);
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        may
    }

    /// The last request was not sent after all.
    pub(crate) fn take_back(&self) {
        let sent = self.sent.fetch_sub(1, Ordering::SeqCst) - 1;
        // An answer that nobody waited for may have come meanwhile.
        self.answered.fetch_min(sent, Ordering::SeqCst);
    }

    /// The next request is answered. Returns whether the client may be read from again for that. Does nothing if all are
    /// answered.
    pub(crate) fn answer(&self) -> bool {
        let next = |answered| (answered < self.sent.load(Ordering::SeqCst)).then_some(answered + 1);
        let before = self.answered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        before.is_ok_and(|before| self.sent.load(Ordering::SeqCst) - before == UNANSWERED_MAX)
    }

    /// All that were sent until now, over links that `sent` names.
    pub(crate) fn until_now(self: &Arc<Self>, over: Commits) -> Requested {
        Requested { last: self.sent.load(Ordering::SeqCst), requests: Arc::clone(self), over }
    }
}

/// Requests up to some one.
#[derive(Clone, Debug)]
pub struct Requested {
    requests: Arc<Requests>,
    last: u64,
    over: Commits,
}

impl Requested {
    /// Whether all of them are answered. Who answers one [releases](super::Session::release_held) what waits for it.
    pub(super) fn are_answered(&self) -> bool {
        self.requests.answered.load(Ordering::SeqCst) >= self.last
    }

    /// The links that have carried them.
    pub(super) fn over(&self) -> &Commits {
        &self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(requests: &Arc<Requests>) -> Requested {
        requests.until_now(Commits::default())
    }

    #[test]
    fn a_client_is_read_from_as_fast_as_it_is_answered() {
        let requests = Arc::new(Requests::default());
        assert!(all(&requests).are_answered());
        (0..=UNANSWERED_MAX).for_each(|_| assert!(requests.send(1)));
        let until = all(&requests);
        assert!(requests.are_many());
        assert!(!requests.answer() && requests.are_many());
        assert!(requests.answer() && !requests.are_many() && !until.are_answered());
        (1..UNANSWERED_MAX).for_each(|_| assert!(!requests.answer()));
        assert!(until.are_answered());
        assert!(!requests.answer() && requests.unanswered() == 0, "nothing is left to answer");
    }

    #[test]
    fn what_is_taken_back_answers_nothing() {
        let requests = Arc::new(Requests::default());
        assert!(requests.send(1));
        let first = all(&requests);
        assert!(requests.send(1));
        requests.take_back();
        assert!(!first.are_answered() && requests.unanswered() == 1);
        assert!(requests.send(1));
        (0..2).for_each(|_| assert!(!requests.answer()));
        requests.take_back();
        assert!(first.are_answered() && requests.unanswered() == 0);
        assert!(requests.send(1));
        assert!(!all(&requests).are_answered());
    }

    #[test]
    fn one_broker_is_asked_at_a_time() {
        let requests = Requests::default();
        assert!(requests.send(1) && requests.send(1) && !requests.send(2));
        assert!(requests.wait_for(1) && !requests.wait_for(2));
        requests.answer();
        requests.answer();
        assert!(!requests.wait_for(1) && requests.send(2) && requests.wait_for(2));
    }
}
