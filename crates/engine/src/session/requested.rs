//! Requests to the state store that another broker carries out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the requests of one connection that another broker carries out, and how many of them are answered. They are
/// answered in their order.
///
/// A client is read from only as fast as it is answered: responses may be much larger than requests.
#[derive(Debug, Default)]
pub struct Requests {
    sent: AtomicU64,
    answered: AtomicU64,
}

/// Number of unanswered requests of a client from which on it is not read from.
const UNANSWERED_MAX: u64 = 16;

impl Requests {
    /// A request is sent.
    pub(crate) fn send(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether so many are unanswered that the client is not to be read from.
    pub(crate) fn are_many(&self) -> bool {
        let answered = self.answered.load(Ordering::Acquire);
        self.sent.load(Ordering::Relaxed) - answered >= UNANSWERED_MAX
    }

    /// The next request is answered.
    pub(crate) fn answer(&self) {
        self.answered.fetch_add(1, Ordering::AcqRel);
    }

    /// All that were sent until now.
    pub(crate) fn until_now(self: &Arc<Self>) -> Requested {
        Requested { last: self.sent.load(Ordering::Relaxed), requests: Arc::clone(self) }
    }
}

/// Requests up to some one.
#[derive(Clone, Debug)]
pub struct Requested {
    requests: Arc<Requests>,
    last: u64,
}

impl Requested {
    /// Whether all of them are answered. Who answers one [releases](super::Session::release_held) what waits for it.
    pub(super) fn are_answered(&self) -> bool {
        self.requests.answered.load(Ordering::Acquire) >= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_read_from_as_fast_as_it_is_answered() {
        let requests = Arc::new(Requests::default());
        assert!(requests.until_now().are_answered());
        (0..UNANSWERED_MAX).for_each(|_| requests.send());
        let all = requests.until_now();
        assert!(requests.are_many());
        requests.answer();
        assert!(!requests.are_many() && !all.are_answered());
        (1..UNANSWERED_MAX).for_each(|_| requests.answer());
        assert!(all.are_answered());
    }
}
