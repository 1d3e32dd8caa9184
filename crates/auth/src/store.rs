//! The back end of users in Barid's own store.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use barid_engine::managed::{Managed, ManagedKind};
use parking_lot::Mutex;

use crate::asker::Asker;
use crate::directory::{Directory, Found, NoAnswer, Unavailable};
use crate::stored::{StoredUser, unreadable};

/// The name of the back end in the configuration, in metrics and in the log.
pub const NAME: &str = "store";

/// Maximum number of users whose hashes are verified for unknown names. A sample of this size has nearly the same
/// shares of cheap and costly hashes as all users.
const DECOYS_MAX: usize = 512;

/// Number of decoys for which another user is tried if one was removed in the same moment.
const ATTEMPTS: usize = 4;

/// The users in Barid's own store.
pub struct StoreUsers {
    managed: Arc<Managed>,
    decoys: Mutex<Decoys>,
}

/// A random sample of the users: those whose names have the lowest hashes.
struct Decoys {
    sample: Vec<(u64, Arc<str>)>,
    hasher: RandomState,
}

impl StoreUsers {
    /// Creates the back end over these objects, and follows their changes.
    pub fn new(managed: Arc<Managed>) -> Arc<Self> {
        let decoys = Decoys { sample: Vec::new(), hasher: RandomState::new() };
        let users = Arc::new(Self { managed, decoys: Mutex::new(decoys) });
        let following = Arc::downgrade(&users);
        users.managed.on_change(move |kind, name| {
            if let Some(users) = following.upgrade().filter(|_| kind == ManagedKind::User) {
                users.changed(name);
            }
        });
        users.decoys.lock().fill(&users.managed);
        users
    }

    /// Updates the sample after a user was put or removed.
    fn changed(&self, name: &str) {
        // The user is looked up under the lock, so that the last of several calls finds the last state.
        let mut decoys = self.decoys.lock();
        if self.managed.get(ManagedKind::User, name).is_some() {
            decoys.add(name);
        } else {
            decoys.remove(name);
            let count = self.managed.count(ManagedKind::User);
            if decoys.sample.len() < (DECOYS_MAX / 2).min(count) {
                decoys.fill(&self.managed);
            }
        }
    }

    fn read(&self, user: &str) -> Result<Option<StoredUser>, Unavailable> {
        let Some(text) = self.managed.get(ManagedKind::User, user) else { return Ok(None) };
        StoredUser::from_text(&text).map(Some).map_err(|error| unreadable("user", user, &error))
    }
}

impl Directory for StoreUsers {
    fn name(&self) -> &str {
        NAME
    }

    fn find<'a>(&'a self, user: &'a str, _: Asker<'a>) -> Found<'a> {
        let found = self.read(user).map(|user| user.map(StoredUser::into_record));
        Box::pin(std::future::ready(found.map_err(NoAnswer::from)))
    }

    fn decoy(&self, user: &str) -> Option<String> {
        for attempt in 0..ATTEMPTS {
            let name = self.decoys.lock().of(user, attempt)?;
            if let Ok(Some(user)) = self.read(&name) {
                return Some(user.password);
            }
        }
        None
    }
}

impl Decoys {
    /// Chooses a user for an unknown name: always the same one, as long as the sample does not change.
    fn of(&self, name: &str, attempt: usize) -> Option<Arc<str>> {
        let count = self.sample.len();
        let place = (u128::from(self.hasher.hash_one(name)) * count as u128) >> u64::BITS;
        let place = usize::try_from(place).expect("it is less than a length");
        self.sample.get((place + attempt) % count.max(1)).map(|(_, name)| Arc::clone(name))
    }

    fn add(&mut self, name: &str) {
        let hash = self.hasher.hash_one(name);
        let place = self.sample.partition_point(|(other, _)| *other < hash);
        let is_known = self.sample.get(place).is_some_and(|(other, _)| *other == hash);
        if place < DECOYS_MAX && !is_known {
            self.sample.insert(place, (hash, name.into()));
            self.sample.truncate(DECOYS_MAX);
        }
    }

    fn remove(&mut self, name: &str) {
        let hash = self.hasher.hash_one(name);
        self.sample.retain(|(other, _)| *other != hash);
    }

    /// Takes a new sample of all users.
    fn fill(&mut self, managed: &Managed) {
        self.sample.clear();
        managed.for_each(ManagedKind::User, |name, _| self.add(name));
    }
}

impl fmt::Debug for StoreUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUsers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::directory::Record;
    use crate::testing::{managed, now, put, remove};

    fn user(password: usize) -> String {
        format!(r#"{{"password":"hash {password}","publish":["a"],"disabled":true}}"#)
    }

    fn find(users: &StoreUsers, name: &str) -> Result<Option<Record>, NoAnswer> {
        now(users.find(name, Asker::BROKER))
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let managed = managed();
        put(&managed, ManagedKind::User, "acme/a", &user(1));
        let users = StoreUsers::new(Arc::clone(&managed));
        let record = find(&users, "acme/a").unwrap().unwrap();
        assert_eq!((&*record.password, record.disabled), ("hash 1", true));
        assert_eq!(record.rights.publish, Some(vec!["a".into()]));
        for other in ["acme/A", "acme/a ", "a", "acme", "default/a", "acme/a/b"] {
            assert_eq!(find(&users, other), Ok(None), "{other}");
        }
        put(&managed, ManagedKind::User, "acme/a", &user(2));
        assert_eq!(find(&users, "acme/a").unwrap().unwrap().password, "hash 2");
        remove(&managed, ManagedKind::User, "acme/a");
        assert_eq!(find(&users, "acme/a"), Ok(None));
    }

    #[test]
    fn a_user_that_cannot_be_read_is_not_unknown() {
        let managed = managed();
        put(&managed, ManagedKind::User, "acme/a", r#"{"password":"secret hash","later":1}"#);
        let users = StoreUsers::new(managed);
        let told = find(&users, "acme/a").unwrap_err().to_string();
        assert!(told.contains("acme/a") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn an_unknown_name_has_the_hash_of_a_user_always_the_same_one() {
        let managed = managed();
        let users = StoreUsers::new(Arc::clone(&managed));
        assert_eq!(users.decoy("acme/x"), None);
        for number in 0..5 {
            put(&managed, ManagedKind::User, &format!("acme/{number}"), &user(number));
        }
        let decoys = |users: &StoreUsers| -> Vec<_> {
            (0..100).map(|number| users.decoy(&format!("x/{number}")).unwrap()).collect()
        };
        let first = decoys(&users);
        assert_eq!(first, decoys(&users));
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 5, "all of them are chosen");
        remove(&managed, ManagedKind::User, "acme/3");
        assert!(!decoys(&users).contains(&"hash 3".into()));
    }

    #[test]
    fn the_sample_is_bounded_and_is_taken_again_when_most_of_it_is_removed() {
        let managed = managed();
        let users = StoreUsers::new(Arc::clone(&managed));
        let name = |number| format!("acme/{number}");
        for number in 0..3 * DECOYS_MAX {
            put(&managed, ManagedKind::User, &name(number), &user(number));
        }
        let sample = |users: &StoreUsers| -> BTreeSet<Arc<str>> {
            users.decoys.lock().sample.iter().map(|(_, name)| Arc::clone(name)).collect()
        };
        let all = sample(&users);
        assert_eq!(all.len(), DECOYS_MAX);
        // A back end that begins with all users takes a sample of the same size.
        assert_eq!(sample(&StoreUsers::new(Arc::clone(&managed))).len(), DECOYS_MAX);
        all.iter().for_each(|name| remove(&managed, ManagedKind::User, name));
        let left = sample(&users);
        assert!(left.len() >= DECOYS_MAX / 2 && left.is_disjoint(&all));
        for number in 0..3 * DECOYS_MAX {
            remove(&managed, ManagedKind::User, &name(number));
        }
        assert_eq!((sample(&users).len(), users.decoy("acme/x")), (0, None));
    }
}
