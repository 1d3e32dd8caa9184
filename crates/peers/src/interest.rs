//! The topic filters that a broker's clients have subscribed to, as it tells them to the other brokers.
//!
//! A filter is told when the first session has it, and again when the last one has lost it. Each change has a *version*.
//! A broker that joins gets a snapshot in parts, and then the changes since the snapshot began. A change may be told
//! twice, in the snapshot and after it: the last word on a filter counts, and it is the right one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Number of changes that are kept for brokers that have not been told yet. One that is further behind gets a snapshot.
const KEPT: usize = 100_000;

/// Maximum number of filters in a part of what a broker is told.
const PART: usize = 512;

/// A tenant and one of its topic filters.
type Key = (Arc<str>, Arc<str>);

/// The topic filters of all sessions of a broker.
#[derive(Debug, Default)]
pub struct Interest {
    filters: BTreeMap<Key, Wanted>,
    /// Number of changes so far, which is the version of the last one.
    version: u64,
    /// The last changes; the last one of them has [`Self::version`].
    changes: VecDeque<(bool, Key)>,
}

#[derive(Debug)]
struct Wanted {
    /// Number of sessions that have the filter.
    sessions: u32,
    /// The version of the change that has told it.
    since: u64,
}

/// How far one other broker has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing yet: a snapshot is to begin.
    Nothing,
    /// A snapshot that has begun at this version, up to this filter.
    Snapshot(u64, Option<(Arc<str>, Arc<str>)>),
    /// All changes up to this version.
    Changes(u64),
}

impl Interest {
    /// Adds the subscription of a session that did not have this filter before. Returns the version that the other
    /// brokers must have heard before the subscription has an effect everywhere, and whether it is a new one.
    pub fn add(&mut self, tenant: &Arc<str>, filter: &str) -> (u64, bool) {
        let key: Key = (Arc::clone(tenant), filter.into());
        if let Some(wanted) = self.filters.get_mut(&key) {
            wanted.sessions += 1;
            return (wanted.since, false);
        }
        self.change(true, key.clone());
        self.filters.insert(key, Wanted { sessions: 1, since: self.version });
        (self.version, true)
    }

    /// Removes the subscription of a session. Returns whether the other brokers are to be told.
    pub fn remove(&mut self, tenant: &Arc<str>, filter: &str) -> bool {
        let key: Key = (Arc::clone(tenant), filter.into());
        let Some(wanted) = self.filters.get_mut(&key) else { return false };
        wanted.sessions -= 1;
        let is_last = wanted.sessions == 0;
        if is_last {
            self.filters.remove(&key);
            self.change(false, key);
        }
        is_last
    }

    /// Returns the version that the other brokers must have heard before a subscription to this filter, which a session
    /// has, has an effect everywhere.
    pub fn version_of(&self, tenant: &Arc<str>, filter: &str) -> Option<u64> {
        self.filters.get(&(Arc::clone(tenant), filter.into())).map(|wanted| wanted.since)
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of distinct filters.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether no session has a subscription.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Gives another broker, which has been told up to `told`, the next part of what it does not know: at most a few
    /// hundred filters. `tell` is called for each, with whether it is added. Returns whether something is left.
    /// A part that begins with [`Part::Nothing`] is the first of a snapshot.
    pub fn tell(&self, told: &mut Part, mut tell: impl FnMut(bool, &str, &str)) -> bool {
        if let Part::Changes(version) = *told
            && self.version - version > self.changes.len() as u64
        {
            *told = Part::Nothing;
        }
        match told {
            Part::Nothing => {
                *told = Part::Snapshot(self.version, None);
                self.tell(told, tell)
            }
            Part::Snapshot(began, last) => {
                let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let (began, mut end) = (*began, None);
                for (key, _) in self.filters.range((from, Bound::Unbounded)).take(PART) {
                    tell(true, &key.0, &key.1);
                    end = Some(key.clone());
                }
                if end.is_some() {
                    *last = end;
                    return true;
                }
                *told = Part::Changes(began);
                began != self.version
            }
            Part::Changes(version) => {
                let untold = usize::try_from(self.version - *version).unwrap_or(usize::MAX);
                let first = self.changes.len() - untold;
                for (is_added, key) in self.changes.range(first..).take(PART) {
                    tell(*is_added, &key.0, &key.1);
                    *version += 1;
                }
                *version != self.version
            }
        }
    }

    fn change(&mut self, is_added: bool, key: Key) {
        self.version += 1;
        if self.changes.len() == KEPT {
            self.changes.pop_front();
        }
        self.changes.push_back((is_added, key));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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
    }

    #[test]
    fn whoever_is_too_far_behind_gets_a_snapshot() {
        let mut interest = Interest::default();
        let acme: Arc<str> = "acme".into();
        let mut told = Part::Changes(0);
        for _ in 0..KEPT {
            interest.add(&acme, "a");
            interest.remove(&acme, "a");
        }
        interest.add(&acme, "b");
        let mut heard = vec![];
        assert!(
            interest.tell(&mut told, |added, _, filter| heard.push((added, filter.to_owned())))
        );
        assert!(matches!(told, Part::Snapshot(..)));
        assert_eq!(heard, [(true, "b".to_owned())]);
        assert!(!interest.tell(&mut told, |_, _, _| panic!("that was all")));
        assert_eq!(told, Part::Changes(interest.version()));
    }

    proptest! {
        /// Another broker that is told in parts, at any moments, knows the filters in the end.
        #[test]
        fn what_is_told_in_parts_is_the_whole(
            steps in proptest::collection::vec((0..3_u8, 0..1_500_u32), 0..3_000),
        ) {
            let mut interest = Interest::default();
            let acme: Arc<str> = "acme".into();
            for filter in 0..1_000 {
                interest.add(&acme, &format!("{filter:04}"));
            }
            let mut told = Part::Nothing;
            let mut known = BTreeSet::new();
            let mut hear = |interest: &Interest| {
                interest.tell(&mut told, |is_added, _, filter| {
                    match is_added {
                        true => known.insert(filter.to_owned()),
                        false => known.remove(filter),
                    };
                })
            };
            for (what, filter) in steps {
                let filter = format!("{filter:04}");
                match what {
                    0 => { interest.add(&acme, &filter); }
                    1 => { interest.remove(&acme, &filter); }
                    _ => { hear(&interest); }
                }
            }
            while hear(&interest) {}
            let expected: BTreeSet<_> =
                interest.filters.keys().map(|(_, filter)| filter.to_string()).collect();
            prop_assert_eq!(known, expected);
        }
    }
}
