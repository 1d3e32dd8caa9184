//! What another broker has told of the subscriptions of its clients.
//!
//! The filters themselves are in the indexes of their tenants, and nowhere else. Each is there with the number of the
//! snapshot in which it was last told, so that the end of a snapshot shows what is no longer subscribed to.

use barid_core::topic_index::Subscriber;

use super::MemberRef;

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

/// How much another broker has told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Number of its filters in the indexes.
    pub(super) filters: usize,
    /// Number of snapshots that have begun.
    snapshot: u32,
    /// Whether the indexes may have filters that are not told in the snapshot that has begun.
    has_older: bool,
}

impl Heard {
    /// A snapshot begins.
    pub(super) fn begin(&mut self) {
        self.snapshot = self.snapshot.wrapping_add(1);
        self.has_older = self.filters > 0;
    }

    /// Everything has been told that there was. Returns whether the filters must be removed for which
    /// [`is_current`](Self::is_current) returns false.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.has_older)
    }

    /// Returns how a filter that is told now is added to an index.
    pub(super) fn subscriber(&self, member: MemberRef) -> RemoteSubscriber {
        RemoteSubscriber { member, snapshot: self.snapshot }
    }

    /// Whether a filter has been told in the last snapshot, or after it.
    pub(super) fn is_current(&self, subscriber: &RemoteSubscriber) -> bool {
        subscriber.snapshot == self.snapshot
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
        let topics = || {
            let index = cluster.index("acme");
            let route = |topic| index.route(topic).recipients().len();
            ["a", "b/c", "d", "e"].map(route)
        };
        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "a"), 1);
        assert_eq!(tell(one, true, "b/+"), 2);
        assert_eq!(tell(one, true, "a"), 2, "it is known");
        cluster.on_told(one);
        assert_eq!(tell(one, false, "a"), 1);
        assert_eq!(tell(one, false, "a"), 1, "it is unknown");
        assert_eq!(tell(one, true, "d"), 2);
        cluster.on_snapshot(two);
        assert_eq!(tell(two, true, "d"), 1);
        cluster.on_told(two);
        assert_eq!(topics(), [0, 1, 2, 0]);

        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "e"), 3, "what is older stays in the meantime");
        cluster.on_snapshot(one);
        assert_eq!(tell(one, true, "d"), 3);
        assert_eq!(tell(one, true, "$share/group/b/+"), 4);
        cluster.on_told(one);
        assert_eq!((topics(), cluster.filters_of(one)), ([0, 0, 2, 0], 2));
        cluster.is_down(one);
        assert_eq!((topics(), cluster.filters_of(one)), ([0, 0, 1, 0], 0));
        assert!(cluster.index("acme").route("b/c").groups().is_empty());
    }
}
