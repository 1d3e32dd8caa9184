//! Numbers that tell whether a user has changed since its login began.

use std::array;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use barid_engine::names::tenant_of;

/// Number of counters of each kind. Two users may share one, so it only bounds how often a user is looked up again
/// without need.
const COUNTERS: usize = 256;

type Counters<T> = [T; COUNTERS];

/// Counters of the changes of users and tenants.
#[derive(Debug)]
pub(crate) struct Versions {
    users: Counters<AtomicU64>,
    tenants: Counters<AtomicU64>,
    hasher: RandomState,
}

/// The version of a user: how often it has changed, and how often its tenant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    user: u64,
    tenant: u64,
}

/// The versions of all users at one moment: who a client is may not be known before its back end has answered.
#[derive(Debug)]
pub(crate) struct Moment {
    users: Counters<u64>,
    tenants: Counters<u64>,
}

impl Versions {
    pub(crate) fn new() -> Self {
        let counters = || array::from_fn(|_| AtomicU64::new(0));
        Self { users: counters(), tenants: counters(), hasher: RandomState::new() }
    }

    /// Returns the version of a user, given by its full name.
    pub(crate) fn of(&self, user: &str) -> Version {
        let tenant = self.of_tenant(tenant_of(Some(user)).unwrap_or_default());
        Version { user: self.users[self.place(user)].load(Ordering::SeqCst), tenant }
    }

    /// Returns how often a tenant has changed.
    pub(crate) fn of_tenant(&self, tenant: &str) -> u64 {
        self.tenants[self.place(tenant)].load(Ordering::SeqCst)
    }

    /// Returns the versions of all users.
    pub(crate) fn now(&self) -> Box<Moment> {
        let read = |counters: &Counters<AtomicU64>| {
            array::from_fn(|place| counters[place].load(Ordering::SeqCst))
        };
        Box::new(Moment { users: read(&self.users), tenants: read(&self.tenants) })
    }

    /// Returns the version that a user had at a moment.
    pub(crate) fn at(&self, moment: &Moment, user: &str) -> Version {
        let tenant = self.place(tenant_of(Some(user)).unwrap_or_default());
        Version { user: moment.users[self.place(user)], tenant: moment.tenants[tenant] }
    }

    /// Returns whether a user has changed since `version`; `None`: neither the user nor its tenant has.
    pub(crate) fn changed_since(&self, version: Version, user: &str) -> Option<bool> {
        let now = self.of(user);
        (now != version).then_some(now.user != version.user)
    }

    pub(crate) fn user_changed(&self, user: &str) {
        self.users[self.place(user)].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn tenant_changed(&self, tenant: &str) {
        self.tenants[self.place(tenant)].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn everybody_changed(&self) {
        for tenant in &self.tenants {
            tenant.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn place(&self, name: &str) -> usize {
        let place = self.hasher.hash_one(name) % COUNTERS as u64;
        usize::try_from(place).expect("it is less than a small number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_whom_it_concerns() {
        let versions = Versions::new();
        let (ada, bob) = ("acme/ada", "other/bob");
        let moment = versions.now();
        let before = versions.of(ada);
        assert_eq!(
            (versions.at(&moment, ada), versions.changed_since(before, ada)),
            (before, None)
        );
        versions.user_changed(ada);
        assert_eq!(versions.changed_since(before, ada), Some(true));
        assert_eq!(versions.at(&moment, ada), before);
        let before = versions.of(ada);
        versions.tenant_changed("acme");
        assert_eq!(versions.changed_since(before, ada), Some(false));
        let before = [versions.of(ada), versions.of(bob)];
        versions.everybody_changed();
        assert_eq!(
            [ada, bob].map(|user| versions.of(user) == before[usize::from(user == bob)]),
            [false; 2]
        );
    }
}
