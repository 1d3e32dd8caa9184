//! What each tenant uses at each broker. Its limits hold for all brokers together: approximately, since what one broker has
//! used reaches the others a moment later.
//!
//! Counts, such as that of connections, are added up. What was used of a rate is taken out of the tenant's buckets at the other
//! brokers as well.

use std::sync::Arc;

use barid_peers::{Announced, Frame, Part, RATES, Used};
use hashbrown::HashMap;

use super::{Cluster, MemberRef};
use crate::quotas::Elsewhere;
use crate::sync::{Mutex, RwLock};

/// Number of tenants that are told in a row.
const TOGETHER: usize = 512;

/// What each tenant uses.
#[derive(Default)]
pub(super) struct Usages {
    own: Mutex<Own>,
    /// What it uses at the other brokers together.
    elsewhere: RwLock<HashMap<Arc<str>, Arc<Elsewhere>>>,
}

/// What each tenant uses here.
#[derive(Default)]
struct Own {
    announced: Announced<Used>,
    /// The last count of each tenant, with the number of the round of counting that has found it.
    last: HashMap<Arc<str>, (Used, u64)>,
    rounds: u64,
}

/// What each tenant uses at another broker, as that has told.
pub(super) type UsedThere = HashMap<Box<str>, Used>;

/// How far one other broker has been told.
#[derive(Debug, Default)]
pub struct UsagesTold(Part);

impl Cluster {
    /// Notes what each tenant uses here now, to be told to the other brokers. `visit` calls its argument for each tenant.
    pub(crate) fn note_usages(&self, visit: impl FnOnce(&mut dyn FnMut(&str, Used))) {
        let mut own = self.usages.own.lock();
        let Own { announced, last, rounds } = &mut *own;
        let before = announced.version();
        *rounds += 1;
        visit(&mut |tenant, used| match last.get_mut(tenant) {
            Some((noted, round)) if *noted == used => *round = *rounds,
            _ => {
                let tenant = Arc::from(tenant);
                announced.set(&tenant, "", |_| used);
                last.insert(tenant, (used, *rounds));
            }
        });
        for (tenant, _) in last.extract_if(|_, (_, round)| *round < *rounds) {
            announced.remove(&tenant, "", |_| true);
        }
        let has_changed = announced.version() != before;
        drop(own);
        if has_changed {
            self.teller.news_to_tell();
        }
    }

    /// Gives the next part of what the tenants use here to another broker. Returns whether something is left.
    pub fn tell_usages(&self, told: &mut UsagesTold, mut tell: impl FnMut(&Frame<'_>)) -> bool {
        if told.0 == Part::Nothing {
            tell(&Frame::UsagesBegin);
        }
        self.usages.own.lock().announced.tell(&mut told.0, TOGETHER, |tenant, _, used| {
            tell(&Frame::Used { tenant, used: used.copied().unwrap_or_default() });
        })
    }

    /// Another broker begins to tell what all tenants use there, or is out of the cluster.
    pub(crate) fn on_usages(&self, member: MemberRef) {
        // Locked until the end, as in `on_used`.
        let mut there = self.at(member).used.lock();
        for (tenant, before) in there.drain() {
            self.elsewhere(&tenant).change(&before, &Used::default());
        }
    }

    /// Another broker has told what a tenant uses there. Returns what was used of the tenant's rates since it was told last;
    /// if negative, given back.
    pub(crate) fn on_used(&self, member: MemberRef, tenant: &str, used: Used) -> [i64; RATES] {
        // Under this lock the sums are those of what is known of each broker.
        let mut there = self.at(member).used.lock();
        let before = match used == Used::default() {
            true => there.remove(tenant),
            false => there.insert(tenant.into(), used),
        };
        self.elsewhere(tenant).change(&before.unwrap_or_default(), &used);
        drop(there);
        // What a broker tells first may have been used long ago.
        let before = before.map_or(used.spent, |before| before.spent);
        std::array::from_fn(|rate| used.spent[rate].wrapping_sub(before[rate]).cast_signed())
    }

    /// Returns what a tenant uses at the other brokers together.
    pub(crate) fn elsewhere(&self, tenant: &str) -> Arc<Elsewhere> {
        if let Some(elsewhere) = self.usages.elsewhere.read().get(tenant) {
            return Arc::clone(elsewhere);
        }
        let mut all = self.usages.elsewhere.write();
        Arc::clone(all.entry(tenant.into()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterSize;
    use crate::cluster::tests::Silent;
    use crate::random::tests::COUNTING;

    fn cluster() -> Cluster {
        let size = ClusterSize { members: 4, threads: 1, origin: 1 };
        Cluster::new(size, 1, COUNTING, Box::new(Silent), None)
    }

    fn used(connections: u64, messages: u64) -> Used {
        Used { connections, spent: [messages, 0, 0, 0], ..Used::default() }
    }

    #[test]
    fn counts_of_other_brokers_are_added_up_until_they_are_gone() {
        let cluster = cluster();
        let [b, c] = ["b", "c"].map(|name| cluster.place(name).unwrap());
        let acme = cluster.elsewhere("acme");
        assert_eq!(
            cluster.on_used(b, "acme", used(3, 100)),
            [0; RATES],
            "used before it was known"
        );
        cluster.on_used(c, "acme", used(5, 0));
        assert_eq!(acme.connections(), 8);
        assert_eq!(cluster.on_used(b, "acme", used(1, 140)), [40, 0, 0, 0]);
        assert_eq!(cluster.on_used(b, "acme", used(1, 130)), [-10, 0, 0, 0]);
        assert_eq!(acme.connections(), 6);
        cluster.on_used(c, "acme", Used::default());
        assert_eq!(acme.connections(), 1);
        cluster.on_usages(b);
        assert_eq!(acme.connections(), 0);
        assert_eq!(cluster.on_used(b, "acme", used(2, 10)), [0; RATES], "it was started again");
        assert_eq!((acme.connections(), cluster.elsewhere("other").connections()), (2, 0));
    }

    #[test]
    fn another_broker_is_told_what_has_changed() {
        let cluster = cluster();
        let mut told = UsagesTold::default();
        let mut tells = || {
            let mut frames = Vec::new();
            while cluster.tell_usages(&mut told, |frame| {
                frames.push(match frame {
                    Frame::UsagesBegin => "begins".to_owned(),
                    Frame::Used { tenant, used } => format!("{tenant} {}", used.connections),
                    other => panic!("{other:?}"),
                });
            }) {}
            frames
        };
        let note = |all: &[(&str, u64)]| {
            cluster.note_usages(|note| {
                all.iter().for_each(|(name, count)| note(name, used(*count, 0)));
            });
        };
        note(&[("a", 1), ("b", 2)]);
        assert_eq!(tells(), ["begins", "a 1", "b 2"]);
        note(&[("a", 1), ("b", 3)]);
        assert_eq!(tells(), ["b 3"]);
        note(&[("b", 3)]);
        assert_eq!(tells(), ["a 0"]);
        note(&[("b", 3)]);
        assert_eq!(tells(), [""; 0]);
    }
}
