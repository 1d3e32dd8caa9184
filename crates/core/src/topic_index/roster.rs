//! The subscribers of one filter, or the members of one shared subscription.

use hashbrown::HashTable;

use super::hashing::hash_key;
use super::{Member, Subscriber};

/// Number of members from which on a roster keeps an index by key.
const INDEXED_FROM: usize = 32;

/// Members in no particular order, one per key. Adding, finding and removing cost O(1), however
/// many members there are: 100,000 clients of one filter may all leave at once.
#[derive(Clone)]
pub(super) struct Roster<S> {
    members: Vec<Member<S>>,
    /// Positions in `members` by key; empty while the roster is short.
    positions: HashTable<u32>,
}

impl<S> Default for Roster<S> {
    fn default() -> Self {
        Self { members: Vec::new(), positions: HashTable::new() }
    }
}

impl<S: Subscriber> Roster<S> {
    pub(super) fn members(&self) -> &[Member<S>] {
        &self.members
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the position in [`Self::members`] of the member with `key`.
    pub(super) fn position(&self, key: u64) -> Option<usize> {
        if self.positions.is_empty() {
            return self.members.iter().position(|member| member.subscriber.key() == key);
        }
        let same = |&at: &u32| self.members[at as usize].subscriber.key() == key;
        self.positions.find(hash_key(key), same).map(|&at| at as usize)
    }

    /// Adds `member`. Returns the member with the same key that it replaces.
    pub(super) fn insert(&mut self, member: Member<S>) -> Option<Member<S>> {
        if let Some(at) = self.position(member.subscriber.key()) {
            return Some(std::mem::replace(&mut self.members[at], member));
        }
        self.members.push(member);
        // A roster that has shrunk below the bound keeps its index, and the index must be complete.
        if self.members.len() >= INDEXED_FROM || !self.positions.is_empty() {
            for at in self.positions.len()..self.members.len() {
                self.index(at);
            }
        }
        None
    }

    /// Removes the member with `key`. The last member takes its position.
    pub(super) fn remove(&mut self, key: u64) -> Option<Member<S>> {
        let at = self.position(key)?;
        let last = self.members.len() - 1;
        if !self.positions.is_empty() {
            self.unindex(at);
            if at != last {
                self.unindex(last);
            }
        }
        let removed = self.members.swap_remove(at);
        if self.members.len() < INDEXED_FROM / 2 {
            self.positions = HashTable::new();
        } else if !self.positions.is_empty() && at != last {
            self.index(at);
        }
        if self.members.capacity() > 4 * self.members.len() {
            self.shrink();
        }
        Some(removed)
    }

    /// Takes the member out if it is the only one.
    pub(super) fn take_only(&mut self) -> Option<Member<S>> {
        if self.members.len() == 1 { self.members.pop() } else { None }
    }

    fn index(&mut self, at: usize) {
        let members = &self.members;
        let hash_at = |&at: &u32| hash_key(members[at as usize].subscriber.key());
        let at = u32::try_from(at).expect("memory ends before 2^32 members do");
        self.positions.insert_unique(hash_at(&at), at, hash_at);
    }

    fn unindex(&mut self, at: usize) {
        let key = self.members[at].subscriber.key();
        if let Ok(entry) = self.positions.find_entry(hash_key(key), |&other| other as usize == at) {
            entry.remove();
        }
    }

    fn shrink(&mut self) {
        let members = &self.members;
        self.positions
            .shrink_to(2 * members.len(), |&at| hash_key(members[at as usize].subscriber.key()));
        self.members.shrink_to(2 * self.members.len());
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use mqtt_proto::QoS;

    use super::*;
    use crate::topic_index::SubscribeOptions;

    #[derive(Clone, Debug, PartialEq)]
    struct Session(u64);

    impl Subscriber for Session {
        fn key(&self) -> u64 {
            self.0
        }
    }

    fn member(key: u64) -> Member<Session> {
        let options = SubscribeOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: NonZeroU32::new(1),
        };
        Member { subscriber: Session(key), options }
    }

    #[test]
    fn a_roster_that_has_shrunk_still_finds_whoever_joins() {
        let mut roster = Roster::default();
        for key in 0..INDEXED_FROM as u64 {
            assert!(roster.insert(member(key)).is_none());
        }
        for key in 0..3 {
            assert!(roster.remove(key).is_some());
        }
        assert!(roster.insert(member(99)).is_none());
        assert!(roster.insert(member(99)).is_some(), "it is there already");
        assert!(roster.remove(99).is_some());
    }
}
