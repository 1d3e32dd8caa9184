//! The back end of users in Barid's own store.

use std::fmt;
use std::sync::Arc;

use barid_engine::managed::{Managed, ManagedKind};
use parking_lot::Mutex;

use crate::asker::Asker;
use crate::decoys::{DECOYS_MAX, Decoys};
use crate::directory::{Directory, Found, NoAnswer, Unavailable};
use crate::stored::{StoredUser, unreadable};

/// The name of the back end in the configuration, in metrics and in the log.
pub const NAME: &str = "store";

/// The users in Barid's own store.
pub struct StoreUsers {
    managed: Arc<Managed>,
    /// The names of users whose hashes stand in for those of unknown names.
    decoys: Mutex<Decoys<Arc<str>>>,
}

impl StoreUsers {
    /// Creates the back end over these objects, and follows their changes. `secret`: that of the
    /// [authenticator](crate::Authenticator::secret).
    pub fn new(managed: Arc<Managed>, secret: &[u8; 32]) -> Arc<Self> {
        let users = Arc::new(Self { managed, decoys: Mutex::new(Decoys::new(secret)) });
        let following = Arc::downgrade(&users);
        users.managed.on_change(move |kind, name| {
            if let Some(users) = following.upgrade().filter(|_| kind == ManagedKind::User) {
                users.changed(name);
            }
        });
        users.fill(&mut users.decoys.lock());
        users
    }

    /// Takes a new sample of all users.
    fn fill(&self, decoys: &mut Decoys<Arc<str>>) {
        decoys.clear();
        self.managed.for_each(ManagedKind::User, |name, _| decoys.put(name, Arc::clone(name)));
    }

    /// Updates the sample after a user was put or removed.
    fn changed(&self, name: &str) {
        // The user is looked up under the lock, so that the last of several calls finds the last state.
        let mut decoys = self.decoys.lock();
        if self.managed.get(ManagedKind::User, name).is_some() {
            decoys.put(name, name.into());
        } else {
            decoys.remove(name);
            let count = self.managed.count(ManagedKind::User);
            if decoys.len() < (DECOYS_MAX / 2).min(count) {
                self.fill(&mut decoys);
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
        let mut decoys = self.decoys.lock();
        loop {
            let name = Arc::clone(decoys.of(user)?);
            if let Ok(Some(user)) = self.read(&name) {
                return Some(user.password);
            }
            // It is being removed in this moment, or cannot be read.
            decoys.remove(&name);
        }
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
        let users = StoreUsers::new(Arc::clone(&managed), &[7; 32]);
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
        let users = StoreUsers::new(managed, &[7; 32]);
        let told = find(&users, "acme/a").unwrap_err().to_string();
        assert!(told.contains("acme/a") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn an_unknown_name_has_the_hash_of_a_user_always_the_same_one() {
        let managed = managed();
        let users = StoreUsers::new(Arc::clone(&managed), &[7; 32]);
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
        // A user that cannot be read is no decoy.
        put(&managed, ManagedKind::User, "acme/2", r#"{"password":"hash 2","later":1}"#);
        assert!(!decoys(&users).contains(&"hash 2".into()));
    }

    #[test]
    fn the_sample_is_bounded_and_is_taken_again_when_most_of_it_is_removed() {
        let managed = managed();
        let users = StoreUsers::new(Arc::clone(&managed), &[7; 32]);
        let name = |number| format!("acme/{number}");
        for number in 0..3 * DECOYS_MAX {
            put(&managed, ManagedKind::User, &name(number), &user(number));
        }
        let sample = |users: &StoreUsers| -> BTreeSet<Arc<str>> {
            users.decoys.lock().iter().cloned().collect()
        };
        let all = sample(&users);
        assert_eq!(all.len(), DECOYS_MAX);
        // A back end that begins with all users takes a sample of the same size.
        assert_eq!(sample(&StoreUsers::new(Arc::clone(&managed), &[7; 32])).len(), DECOYS_MAX);
        all.iter().for_each(|name| remove(&managed, ManagedKind::User, name));
        let left = sample(&users);
        assert!(left.len() >= DECOYS_MAX / 2 && left.is_disjoint(&all));
        for number in 0..3 * DECOYS_MAX {
            remove(&managed, ManagedKind::User, &name(number));
        }
        assert_eq!((sample(&users).len(), users.decoy("acme/x")), (0, None));
    }
}
