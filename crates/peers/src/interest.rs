//! The topic filters that a broker's clients have subscribed to, as it tells them to the other brokers.
//!
//! A filter is told when the first session has it, and again when the last one has lost it.

use std::sync::Arc;

use crate::announced::{Announced, Part};

/// Maximum number of filters in a part of what a broker is told.
const PART: usize = 512;

/// The topic filters of all sessions of a broker.
#[derive(Debug, Default)]
pub struct Interest(Announced<Wanted>);

#[derive(Debug)]
struct Wanted {
    /// Number of sessions that have the filter.
    sessions: u32,
    /// The version of the change that has told it.
    since: u64,
}

impl Interest {
    /// Adds the subscription of a session that did not have this filter before. Returns the version that the other
    /// brokers must have heard before the subscription has an effect everywhere, and whether it is a new one.
    pub fn add(&mut self, tenant: &Arc<str>, filter: &str) -> (u64, bool) {
        if let Some(wanted) = self.0.get_mut(tenant, filter) {
            wanted.sessions += 1;
            return (wanted.since, false);
        }
        (self.0.set(tenant, filter, |since| Wanted { sessions: 1, since }), true)
    }

    /// Removes the subscription of a session. Returns whether the other brokers are to be told.
    pub fn remove(&mut self, tenant: &Arc<str>, filter: &str) -> bool {
        self.0.remove(tenant, filter, |wanted| {
            wanted.sessions -= 1;
            wanted.sessions == 0
        })
    }

    /// Returns the version that the other brokers must have heard before a subscription to this filter, which a session
    /// has, has an effect everywhere.
    pub fn version_of(&mut self, tenant: &Arc<str>, filter: &str) -> Option<u64> {
        self.0.get_mut(tenant, filter).map(|wanted| wanted.since)
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// Number of distinct filters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no session has a subscription.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// [`Announced::tell`]: `tell` is called for each filter with whether it is added, its tenant and itself.
    pub fn tell(&self, told: &mut Part, mut tell: impl FnMut(bool, &str, &str)) -> bool {
        self.0.tell(told, PART, |tenant, filter, wanted| tell(wanted.is_some(), tenant, filter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_and_the_last_session_count() {
        let mut interest = Interest::default();
        let acme: Arc<str> = "acme".into();
        assert_eq!(interest.add(&acme, "a"), (1, true));
        assert_eq!(interest.add(&acme, "b"), (2, true));
        assert_eq!(interest.add(&acme, "a"), (1, false));
        assert_eq!(interest.version_of(&acme, "a"), Some(1));
        assert!(!interest.remove(&acme, "a"));
        assert!(interest.remove(&acme, "a"));
        assert!(!interest.remove(&acme, "a"), "nobody has it");
        assert_eq!((interest.version(), interest.len()), (3, 1));
        let (mut told, mut heard) = (Part::Nothing, Vec::new());
        while interest
            .tell(&mut told, |is_added, _, filter| heard.push((is_added, filter.to_owned())))
        {
        }
        assert_eq!(heard, [(true, "b".to_owned())]);
    }
}
