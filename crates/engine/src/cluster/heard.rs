//! What another broker has told of the subscriptions of its clients.
//!
//! The filters themselves are in the indexes of their tenants, and nowhere else. Each is there with the number of the
//! snapshot in which it was last told. At the end of a snapshot those of earlier ones do not count any more, and when the
//! broker is down none does. They are [removed](Forgetting) later, in steps: there may be a million of them, and heartbeats
//! must not wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use barid_core::topic_index::{PORTIONS, Subscriber};

use super::{Cluster, MemberRef, RemoteIndex};
use crate::sync::Mutex;

/// Number of filters that are removed in one step.
const STEP: usize = 1_000;

/// Another broker as a subscriber of a topic filter.
#[derive(Clone, Copy, Debug)]
pub struct RemoteSubscriber {
    /// The broker.
    pub member: MemberRef,
    /// The snapshot in which the filter was last told, or after which it was added.
    snapshot: u32,
}

impl Subscriber for RemoteSubscriber {
    fn key(&self) -> u64 {
        self.member.key()
    }
}

/// What one other broker has told.
#[derive(Default)]
pub(super) struct Heard {
    /// The first snapshot whose filters count.
    counts_from: AtomicU32,
    told: Mutex<Told>,
}

/// Counts of filters. The lock is held while the indexes change: a later change of the same filter must not overtake an
/// earlier one.
#[derive(Default)]
pub(super) struct Told {
    /// Number of filters that count.
    filters: usize,
    /// Number of those that were told in the present snapshot, or after it.
    current: usize,
    /// Number of snapshots that have begun.
    snapshot: u32,
}

/// Filters that do not count any more, on their way out of the indexes.
pub struct Forgetting {
    member: MemberRef,
    /// The indexes that are left to be searched.
    indexes: Vec<Arc<RemoteIndex>>,
    /// The next portion of the last of them.
    portion: usize,
    /// Filters that were found in it, some of them in a shared subscription of this name.
    found: Vec<(Box<str>, Option<Box<str>>)>,
}

impl Heard {
    /// Number of filters that count.
    pub(super) fn filters(&self) -> usize {
        self.told.lock().filters
    }

    /// Whether a subscription counts.
    pub(super) fn counts(&self, subscriber: &RemoteSubscriber) -> bool {
        subscriber.snapshot >= self.counts_from.load(Ordering::SeqCst)
    }

    /// A snapshot begins.
    pub(super) fn begin(&self) {
        let mut told = self.told.lock();
        told.snapshot += 1;
        told.current = 0;
    }

    /// A filter is added. `replace` puts it into the index with this handle, and returns the one that it replaces.
    pub(super) fn add(
        &self,
        member: MemberRef,
        replace: impl FnOnce(RemoteSubscriber) -> Option<RemoteSubscriber>,
    ) {
        let mut told = self.told.lock();
        let before = replace(RemoteSubscriber { member, snapshot: told.snapshot });
        let before = before.filter(|before| self.counts(before));
        told.filters += usize::from(before.is_none());
        let is_current = before.is_some_and(|before| before.snapshot == told.snapshot);
        told.current += usize::from(!is_current);
    }

    /// A filter is removed. `take` takes it from the index.
    pub(super) fn remove(&self, take: impl FnOnce() -> Option<RemoteSubscriber>) {
        let mut told = self.told.lock();
        let Some(before) = take().filter(|before| self.counts(before)) else { return };
        told.filters -= 1;
        told.current -= usize::from(before.snapshot == told.snapshot);
    }

    /// Everything has been told that there was. Returns whether filters do not count any more.
    pub(super) fn end(&self) -> bool {
        let mut told = self.told.lock();
        let has_older = told.filters > told.current;
        if has_older {
            told.filters = told.current;
            self.counts_from.store(told.snapshot, Ordering::SeqCst);
        }
        has_older
    }

    /// The broker is down. Returns whether filters do not count any more.
    pub(super) fn clear(&self) -> bool {
        let mut told = self.told.lock();
        (told.snapshot, told.current) = (told.snapshot + 1, 0);
        self.counts_from.store(told.snapshot, Ordering::SeqCst);
        std::mem::take(&mut told.filters) > 0
    }
}

impl Cluster {
    /// Begins to remove the filters of a broker that do not count any more.
    pub(super) fn forgetting(&self, member: MemberRef) -> Forgetting {
        let indexes: Vec<_> = self.indexes.read().values().cloned().collect();
        // Before anything is removed: routes that were made with these filters are made anew without them.
        indexes.iter().for_each(|index| index.outdate_routes());
        Forgetting { member, indexes, portion: 0, found: Vec::new() }
    }

    /// Goes on with that. Returns whether something is left.
    pub(crate) fn forget(&self, forgetting: &mut Forgetting) -> bool {
        let Forgetting { member, indexes, portion, found } = forgetting;
        let Some(index) = indexes.last() else { return false };
        let (heard, key) = (&self.at(*member).heard, member.key());
        let is_over = |subscriber: &RemoteSubscriber| {
            subscriber.member == *member && !heard.counts(subscriber)
        };
        for (filter, group) in found.drain(found.len().saturating_sub(STEP)..) {
            // It may have been told again in the meantime.
            match group {
                Some(group) => index.take_shared(&group, &filter, key, is_over),
                None => index.take(&filter, key, is_over),
            };
        }
        if found.is_empty() && *portion == PORTIONS {
            indexes.pop();
            *portion = 0;
        } else if found.is_empty() {
            index.each_subscription(*portion, is_over, |filter, group, _| {
                found.push((filter.into(), group.map(Box::from)));
            });
            *portion += 1;
        }
        !indexes.is_empty()
    }
}

impl std::fmt::Debug for Forgetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forgetting").field("member", &self.member).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use barid_peers::Change;

    use super::super::tests::Silent;
    use super::super::{Cluster, ClusterSize};
    use crate::random::tests::COUNTING;

    #[test]
    fn a_snapshot_replaces_what_was_told_before() {
        let size = ClusterSize { members: 2, threads: 1, origin: 1 };
        let cluster = Cluster::new(size, 1, COUNTING, Box::new(Silent), None);
        let [one, two] = ["one", "two"].map(|name| cluster.place(name).unwrap());
        let tell = |member, is_added, filter| {
            cluster.on_change(member, Change { is_added, tenant: "acme", filter });
            cluster.filters_of(member)
        };
        let index = cluster.index("acme");
        let topics = || {
            let route = |topic| cluster.route(&index, topic).recipients().len();
            ["a", "b/c", "d", "e"].map(route)
        };
        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "a"), 1);
        assert_eq!(tell(one, true, "b/+"), 2);
        assert_eq!(tell(one, true, "a"), 2, "it is known");
        assert!(cluster.on_told(one).is_none());
        assert_eq!(tell(one, false, "a"), 1);
        assert_eq!(tell(one, false, "a"), 1, "it is unknown");
        assert_eq!(tell(one, true, "d"), 2);
        cluster.on_snapshot(two);
        assert_eq!(tell(two, true, "d"), 1);
        assert!(cluster.on_told(two).is_none());
        assert_eq!(topics(), [0, 1, 2, 0]);

        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "e"), 3, "what is older stays in the meantime");
        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "d"), 3);
        assert_eq!(tell(one, true, "$share/group/b/+"), 4);
        let route = cluster.route(&index, "b/c");
        let mut forgetting = cluster.on_told(one).expect("b/+ and e are gone");
        assert!(!route.is_current(&index));
        assert_eq!((topics(), cluster.filters_of(one)), ([0, 0, 2, 0], 2));
        // It is told again before it is removed.
        assert_eq!(tell(one, true, "e"), 3);
        while cluster.forget(&mut forgetting) {}
        assert_eq!((topics(), index.subscription_count()), ([0, 0, 2, 1], 4));

        let (_, forgetting) = cluster.is_down(one);
        assert_eq!((topics(), cluster.filters_of(one)), ([0, 0, 1, 0], 0));
        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "a"), 1);
        assert!(cluster.on_told(one).is_none());
        let mut forgetting = forgetting.expect("there were some");
        while cluster.forget(&mut forgetting) {}
        assert_eq!((topics(), index.subscription_count()), ([1, 0, 1, 0], 2));
    }
}
