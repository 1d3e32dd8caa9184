//! The topic filters of other brokers, as operators ask for them.

use std::collections::BTreeMap;

use barid_core::topic_index::PORTIONS;
use mqtt_proto::topic;

use super::{Cluster, MemberRef, RemoteSubscriber};

/// Topic filters, and the brokers whose sessions have subscribed to them. Those of shared subscriptions are `$share/…`.
pub type Routes = BTreeMap<Box<str>, Vec<MemberRef>>;

/// Which topic filters are wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedRoutes<'a> {
    /// Only those that match this topic.
    pub topic: Option<&'a str>,
    /// Only those behind this one, in the order of their bytes.
    pub after: Option<&'a str>,
    /// No more than these, the first ones.
    pub count: usize,
}

impl Cluster {
    /// Returns topic filters of a tenant to which sessions of other brokers have subscribed, as far as this broker has heard of
    /// them. Looks at all of the tenant, and holds no more than are wanted and one.
    pub fn routes(&self, tenant: &str, wanted: WantedRoutes<'_>) -> Routes {
        let mut routes = Routes::new();
        let Some(index) = self.indexes.read().get(tenant).cloned() else { return routes };
        for portion in 0..PORTIONS {
            let counts = |subscriber: &RemoteSubscriber| self.counts(subscriber);
            index.each_subscription(portion, counts, |filter, group, subscriber| {
                if wanted.topic.is_some_and(|topic| !topic::matches(filter, topic)) {
                    return;
                }
                match group {
                    Some(group) => {
                        let filter = format!("$share/{group}/{filter}");
                        wanted.add(&mut routes, &filter, subscriber.member);
                    }
                    None => wanted.add(&mut routes, filter, subscriber.member),
                }
            });
        }
        routes
    }
}

impl WantedRoutes<'_> {
    fn add(&self, routes: &mut Routes, filter: &str, member: MemberRef) {
        if let Some(members) = routes.get_mut(filter) {
            return members.push(member);
        }
        let is_behind = self.after.is_none_or(|after| filter > after);
        let is_full = routes.len() >= self.count;
        let is_too_far = is_full && routes.last_key_value().is_none_or(|(last, _)| filter > last);
        if is_behind && !is_too_far {
            routes.insert(filter.into(), vec![member]);
            if is_full {
                routes.pop_last();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use barid_peers::Change;

    use super::super::tests::Silent;
    use super::super::{Cluster, ClusterSize};
    use super::WantedRoutes;
    use crate::random::tests::COUNTING;

    #[test]
    fn the_first_ones_behind_a_filter_are_listed_with_all_their_brokers() {
        let size = ClusterSize { members: 2, threads: 1, origin: 1 };
        let cluster = Cluster::new(size, 1, COUNTING, Box::new(Silent), None);
        let [one, two] = ["one", "two"].map(|name| cluster.place(name).unwrap());
        for member in [one, two] {
            cluster.on_snapshot(member);
        }
        let filters = ["d", "$share/g/+/x", "a/#", "a/b", "c/+"];
        for filter in filters {
            cluster.on_change(one, Change { is_added: true, tenant: "acme", filter });
        }
        cluster.on_change(two, Change { is_added: true, tenant: "acme", filter: "a/#" });
        cluster.on_change(two, Change { is_added: true, tenant: "other", filter: "a/z" });
        let list = |topic, after, count| {
            let routes = cluster.routes("acme", WantedRoutes { topic, after, count });
            routes.into_iter().map(|(filter, by)| (filter.into(), by)).collect::<Vec<_>>()
        };
        let expected = |filters: &[&str]| {
            let by = |filter: &str| if filter == "a/#" { vec![one, two] } else { vec![one] };
            filters.iter().map(|it| ((*it).to_owned(), by(it))).collect::<Vec<_>>()
        };
        let all = ["$share/g/+/x", "a/#", "a/b", "c/+", "d"];
        assert_eq!(list(None, None, 10), expected(&all));
        assert_eq!(list(None, None, 2), expected(&all[..2]));
        assert_eq!(list(None, Some("a/#"), 2), expected(&all[2..4]));
        assert_eq!(list(None, Some("d"), 2), expected(&[]));
        assert_eq!(list(Some("a/x"), None, 10), expected(&["$share/g/+/x", "a/#"]));
        assert_eq!(list(None, None, 0), expected(&[]));
        let nobody = cluster.routes("nobody", WantedRoutes { topic: None, after: None, count: 10 });
        assert!(nobody.is_empty());
        // What a broker that is down has told does not count, although it may be in the index still.
        let _ = cluster.is_down(one);
        assert_eq!(list(None, None, 10), [("a/#".to_owned(), vec![two])]);
    }
}
