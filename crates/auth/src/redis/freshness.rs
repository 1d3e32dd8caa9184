//! Which entries of the cache are older than a change.

use std::time::Duration;

use barid_core::time::WallTime;
use barid_engine::names::tenant_of;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::scope::Scope;

/// Maximum difference between the clocks of two brokers.
const SKEW: Duration = Duration::from_secs(2);

/// Maximum number of users and tenants whose changes are remembered one by one.
const CHANGES_MAX: usize = 50_000;

/// The times since which users, tenants and everybody are known to have changed.
///
/// Redis may have an entry that is older: because it could not be told, or has started again with old contents,
/// or because an enemy has written an old entry back.
#[derive(Debug)]
pub(super) struct Freshness {
    /// The longest life of an entry: changes that are older do not matter.
    life: Duration,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    everybody: WallTime,
    tenants: HashMap<Box<str>, WallTime>,
    users: HashMap<Box<str>, WallTime>,
}

impl Freshness {
    pub(super) fn new(life: Duration) -> Self {
        Self { life, changes: Mutex::default() }
    }

    /// Notes a change.
    pub(super) fn note(&self, changed: &Scope, now: WallTime) {
        let mut changes = self.changes.lock();
        let Changes { everybody, tenants, users } = &mut *changes;
        let (map, name) = match changed {
            Scope::User(name) => (users, name),
            Scope::Tenant(name) => (tenants, name),
            Scope::Everybody => {
                *everybody = (*everybody).max(now);
                return;
            }
        };
        if map.len() >= CHANGES_MAX && !map.contains_key(name) {
            let since = now.before(self.life + SKEW);
            map.retain(|_, changed| *changed > since);
            // If most are recent, it costs less to trust no entry than to remember them all.
            if map.len() >= CHANGES_MAX / 2 {
                map.clear();
                *everybody = (*everybody).max(now);
                return;
            }
        }
        map.insert(name.clone(), now);
    }

    /// Whether an entry was certainly created after the last known change of its user.
    pub(super) fn trusts(&self, user: &str, created: WallTime) -> bool {
        let changes = self.changes.lock();
        let tenant = tenant_of(Some(user)).and_then(|tenant| changes.tenants.get(tenant));
        let known = [Some(&changes.everybody), tenant, changes.users.get(user)];
        known
            .into_iter()
            .flatten()
            .all(|changed| *changed == WallTime::default() || created > changed.after(SKEW))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_millis(seconds * 1_000)
    }

    #[test]
    fn entries_from_before_a_change_are_not_trusted() {
        let fresh = Freshness::new(Duration::from_secs(300));
        assert!(fresh.trusts("acme/ada", at(0)));
        fresh.note(&Scope::User("acme/ada".into()), at(1_000));
        let trusted = |user, seconds| fresh.trusts(user, at(seconds));
        assert!(
            !trusted("acme/ada", 900) && !trusted("acme/ada", 1_002) && trusted("acme/ada", 1_003)
        );
        assert!(trusted("acme/bob", 900) && trusted("globex/ada", 900));
        fresh.note(&Scope::Tenant("acme".into()), at(2_000));
        assert!(
            !trusted("acme/bob", 1_500)
                && trusted("acme/bob", 2_003)
                && trusted("acme2/bob", 1_500)
        );
        fresh.note(&Scope::Everybody, at(3_000));
        assert!(!trusted("globex/ada", 2_500) && trusted("globex/ada", 3_003));
    }

    #[test]
    fn memory_is_bounded_and_no_change_is_forgotten_early() {
        let fresh = Freshness::new(Duration::from_secs(300));
        let note = |count: usize, seconds| {
            for number in 0..count {
                fresh.note(&Scope::User(format!("acme/{number}").into()), at(seconds));
            }
        };
        note(CHANGES_MAX, 1_000);
        note(CHANGES_MAX, 1_400);
        fresh.note(&Scope::User("acme/one more".into()), at(1_401));
        assert!(fresh.changes.lock().users.len() < CHANGES_MAX);
        assert!(!fresh.trusts("acme/7", at(1_399)) && !fresh.trusts("acme/one more", at(1_399)));
        assert!(fresh.trusts("acme/7", at(1_500)));
    }
}
