//! Users whose password hashes are verified for names without a user.

use std::fmt;

use crate::directory::Record;
use crate::password::{KEY_LEN, hmac_sha256};

/// Maximum number of users in a sample. A sample of this size has nearly the same shares of cheap and costly hashes
/// as all users.
pub(crate) const DECOYS_MAX: usize = 512;

/// A random sample of the users of a back end, with what is kept of each.
///
/// A name without a user is given a user of the sample, and its login costs as much as one of that user. The
/// time, or the number of iterations of SCRAM, would tell that there is no such user if it changed between two
/// logins. So a name keeps its decoy: a user that comes into the sample becomes the decoy of a small part of the
/// names, and one that leaves it gives its names to another user.
///
/// Both choices depend on nothing but the names and a secret. The same users give the same sample and the same
/// decoys, also after a restart if the secret survives it. A sample of the users that were read so far is empty
/// after a restart, though, and a name may have another decoy until most users have been read again.
pub(crate) struct Decoys<T> {
    secret: [u8; KEY_LEN],
    /// The users with the lowest ranks, in the order of their ranks.
    sample: Vec<(Place, T)>,
}

/// What a name is drawn by: two numbers that look random to those who do not know the secret.
#[derive(Clone, Copy)]
struct Place {
    /// The users with the lowest ranks are in the sample.
    rank: u64,
    /// A position on a ring. The decoy of a name is the next user on the ring.
    position: u64,
}

impl<T> Decoys<T> {
    /// Creates an empty sample.
    pub(crate) fn new(secret: &[u8; KEY_LEN]) -> Self {
        Self { secret: *secret, sample: Vec::new() }
    }

    /// Returns the decoy of a name; `None`: the sample is empty.
    pub(crate) fn of(&self, name: &str) -> Option<&T> {
        let own = self.place(name).position;
        let next = self.sample.iter().min_by_key(|(place, _)| place.position.wrapping_sub(own));
        next.map(|(_, kept)| kept)
    }

    /// Puts a user into the sample, if it belongs there, in place of what was kept of it.
    pub(crate) fn put(&mut self, user: &str, kept: T) {
        let place = self.place(user);
        match self.find(place) {
            Ok(at) => self.sample[at].1 = kept,
            Err(at) if at < DECOYS_MAX => {
                self.sample.insert(at, (place, kept));
                self.sample.truncate(DECOYS_MAX);
            }
            Err(_) => {}
        }
    }

    /// Removes a user.
    pub(crate) fn remove(&mut self, user: &str) {
        if let Ok(at) = self.find(self.place(user)) {
            self.sample.remove(at);
        }
    }

    /// Removes all users.
    pub(crate) fn clear(&mut self) {
        self.sample.clear();
    }

    /// Returns the number of users.
    pub(crate) fn len(&self) -> usize {
        self.sample.len()
    }

    /// What is kept of each user.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.sample.iter().map(|(_, kept)| kept)
    }

    fn find(&self, place: Place) -> Result<usize, usize> {
        self.sample.binary_search_by_key(&place.rank, |(other, _)| other.rank)
    }

    fn place(&self, name: &str) -> Place {
        let digest = hmac_sha256(&self.secret, format!("decoy {name}").as_bytes());
        let number = |at| u64::from_be_bytes(std::array::from_fn(|index| digest[at + index]));
        Place { rank: number(0), position: number(8) }
    }
}

impl Decoys<Box<str>> {
    /// Notes what was read about a user, in a sample of the password hashes of users that were read.
    pub(crate) fn note(&mut self, user: &str, found: Option<&Record>) {
        match found {
            Some(record) => self.put(user, record.password.as_str().into()),
            None => self.remove(user),
        }
    }
}

/// Shows no hash and no secret.
impl<T> fmt::Debug for Decoys<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoys").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SECRET: [u8; KEY_LEN] = [7; KEY_LEN];

    fn of_users(users: impl IntoIterator<Item = usize>) -> Decoys<usize> {
        let mut decoys = Decoys::new(&SECRET);
        users.into_iter().for_each(|user| decoys.put(&format!("acme/{user}"), user));
        decoys
    }

    /// Returns the decoys of many names.
    fn drawn(decoys: &Decoys<usize>) -> Vec<usize> {
        (0..10_000).map(|name| *decoys.of(&format!("x/{name}")).unwrap()).collect()
    }

    fn changed(one: &[usize], other: &[usize]) -> usize {
        one.iter().zip(other).filter(|(one, other)| one != other).count()
    }

    #[test]
    fn the_order_in_which_users_come_and_a_restart_change_nothing() {
        let all = of_users(0..2_000);
        assert_eq!(all.len(), DECOYS_MAX);
        assert_eq!(drawn(&all), drawn(&of_users((0..2_000).rev())));
        let other = Decoys { secret: [8; KEY_LEN], ..of_users([]) };
        assert_ne!(other.place("x").position, all.place("x").position);
    }

    #[test]
    fn users_who_come_and_go_change_the_decoys_of_few_names() {
        let mut decoys = of_users(0..100);
        let before = drawn(&decoys);
        decoys.put("acme/100", 100);
        let after = drawn(&decoys);
        let count = changed(&before, &after);
        assert!((1..1_000).contains(&count), "{count}");
        assert_eq!(after.iter().filter(|user| **user == 100).count(), count);
        decoys.remove("acme/100");
        decoys.remove("acme/nobody");
        assert_eq!(drawn(&decoys), before);
        decoys.clear();
        assert_eq!((decoys.len(), decoys.of("x/1")), (0, None));
    }

    #[test]
    fn a_user_who_is_read_again_is_kept_once_with_what_was_read_last() {
        let mut decoys = of_users([1, 2, 3]);
        let before = drawn(&decoys);
        decoys.put("acme/2", 20);
        let with_20 = |user: &usize| if *user == 2 { 20 } else { *user };
        assert_eq!(drawn(&decoys), before.iter().map(with_20).collect::<Vec<_>>());
        assert_eq!(decoys.len(), 3);
    }

    #[test]
    fn decoys_are_as_costly_as_users() {
        // A quarter of the users has costly hashes.
        let drawn = drawn(&of_users(0..10_000));
        let mut shares = BTreeMap::new();
        drawn.iter().for_each(|user| *shares.entry(user % 4 == 0).or_insert(0) += 1);
        assert!((1_700..3_300).contains(&shares[&true]), "{shares:?}");
    }
}
