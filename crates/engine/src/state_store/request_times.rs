//! Latency of requests whose answers wait for commits.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Instant;

use barid_core::commits::Commits;

use super::Timings;
use crate::clock::Clock;
use crate::progress::{Sources, WaitSet, Waiter};
use crate::sync::Mutex;

/// Latencies of the requests that were answered, and the requests whose answers still wait.
#[derive(Debug)]
pub struct RequestTimes {
    timings: Timings,
    clock: Clock,
    sources: Sources,
    me: Weak<Self>,
    /// Requests whose answers wait: when they were read, and how many there are.
    waiting: Mutex<WaitSet<(Instant, u64)>>,
}

impl RequestTimes {
    /// Creates the statistics, for requests whose answers wait for these sources.
    pub fn new(clock: Clock, sources: Sources) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            timings: Timings::default(),
            clock,
            sources,
            me: Weak::clone(me),
            waiting: Mutex::default(),
        })
    }

    /// Counts `requests` requests that were read at `since` and are answered when `commits` are durable.
    pub fn time(&self, commits: &Commits, requests: u64, since: Instant) {
        let answered = match commits.is_empty() {
            true => Some((since, requests)),
            false if commits.are_lost() => None,
            false => self.waiting.lock().push(
                commits.clone(),
                (since, requests),
                &self.sources,
                &self.me,
            ),
        };
        answered.into_iter().for_each(|answered| self.record(answered));
    }

    fn record(&self, (since, requests): (Instant, u64)) {
        self.timings.record(self.clock.instant() - since, requests);
    }
}

impl Deref for RequestTimes {
    type Target = Timings;

    fn deref(&self) -> &Timings {
        &self.timings
    }
}

impl Waiter for RequestTimes {
    fn wake(&self) {
        let answered = self.waiting.lock().take(&self.sources, &self.me, |_| false);
        answered.into_iter().for_each(|answered| self.record(answered));
    }
}
