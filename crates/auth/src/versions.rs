//! Whether a user has changed since its login began.

use std::collections::hash_map::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_engine::names::tenant_of;
use hashbrown::HashMap;
use parking_lot::RwLock;

/// Maximum number of users, and of tenants, whose last changes are known. Beyond it they are forgotten, and all count as
/// changed at that moment.
const KNOWN_MAX: usize = 65_536;

/// Changes of users and tenants, in order.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// Number of changes so far.
    latest: AtomicU64,
    /// The last change of everybody.
    everybody: AtomicU64,
    users: LastChanges,
    tenants: LastChanges,
}

/// A place in the order of changes: that of the last one when a login began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

/// The last change of each of several names.
#[derive(Debug, Default)]
struct LastChanges(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<Box<str>, u64, RandomState>,
    /// The last change of names that are not known.
    others: u64,
}

impl Versions {
    /// Returns the present place. To be called before a source of users is read.
    pub(crate) fn now(&self) -> Version {
        Version(self.latest.load(Ordering::SeqCst))
    }

    /// Returns whether a user, given by its full name, has changed since `version`; `None`: neither the user nor its
    /// tenant has. `Some(false)`: only its tenant has, or everybody.
    pub(crate) fn changed_since(&self, version: Version, user: &str) -> Option<bool> {
        if self.users.of(user) > version.0 {
            return Some(true);
        }
        let tenant = tenant_of(Some(user)).unwrap_or_default();
        (self.of_tenant(tenant) > version).then_some(false)
    }

    /// Returns the place of the last change of a tenant as a whole.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Version {
        Version(self.tenants.of(tenant).max(self.everybody.load(Ordering::SeqCst)))
    }

    /// Notes that a user has changed. To be called after its source has.
    pub(crate) fn user_changed(&self, user: &str) {
        self.users.note(user, || self.next());
    }

    /// Notes that a tenant has changed.
    pub(crate) fn tenant_changed(&self, tenant: &str) {
        self.tenants.note(tenant, || self.next());
    }

    /// Notes that everybody has changed.
    pub(crate) fn everybody_changed(&self) {
        self.everybody.fetch_max(self.next(), Ordering::SeqCst);
    }

    fn next(&self) -> u64 {
        self.latest.fetch_add(1, Ordering::SeqCst) + 1
    }
}

impl LastChanges {
    fn of(&self, name: &str) -> u64 {
        let known = self.0.read();
        known.by_name.get(name).copied().unwrap_or(0).max(known.others)
    }

    /// `next` is called under the lock, so that who sees the number of the change also sees the change.
    fn note(&self, name: &str, next: impl FnOnce() -> u64) {
        let mut known = self.0.write();
        let change = next();
        if known.by_name.len() >= KNOWN_MAX && !known.by_name.contains_key(name) {
            *known = Known { others: change, ..Known::default() };
        }
        known.by_name.insert(name.into(), change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_those_whom_it_concerns() {
        let versions = Versions::default();
        let users = ["acme/ada", "acme/bob", "other/bob"];
        let changed = |version| users.map(|user| versions.changed_since(version, user));
        let before = versions.now();
        assert_eq!(changed(before), [None; 3]);
        versions.user_changed("acme/ada");
        assert_eq!(changed(before), [Some(true), None, None]);
        assert_eq!(changed(versions.now()), [None; 3]);
        let before = versions.now();
        versions.tenant_changed("acme");
        assert_eq!(changed(before), [Some(false), Some(false), None]);
        let before = versions.now();
        versions.everybody_changed();
        assert_eq!(changed(before), [Some(false); 3]);
        assert_eq!(changed(versions.now()), [None; 3]);
    }

    #[test]
    fn what_is_known_is_bounded() {
        let versions = Versions::default();
        let before = versions.now();
        for number in 0..=KNOWN_MAX {
            versions.user_changed(&format!("acme/{number}"));
        }
        assert!(versions.users.0.read().by_name.len() <= KNOWN_MAX);
        assert_eq!(versions.changed_since(before, "acme/never"), Some(true), "it may have");
        assert_eq!(versions.changed_since(versions.now(), "acme/never"), None);
    }
}
