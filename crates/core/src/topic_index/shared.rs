//! Shared subscriptions (MQTT 5 §4.8.2).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::hashing::Hashing;
use super::roster::Roster;
use super::{Member, Subscriber};

/// Strategy by which a shared subscription chooses the member that gets a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strategy {
    /// The members take turns.
    #[default]
    RoundRobin,
    /// The member with the smallest load. Among more than 64 members, the smallest of 64, starting at another member
    /// for each message.
    LeastInFlight,
    /// The same member for the same hash, as long as that member is there. When a member leaves, only its share moves
    /// (rendezvous hashing). Costs O(members).
    Hash,
}

/// Readiness of a member of a shared subscription to take a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Load {
    /// It can take the message now; this many messages are in flight.
    InFlight(usize),
    /// It can take the message later: messages wait for it.
    Away,
    /// It will never take a message again.
    Gone,
}

/// Number of members that [`Strategy::LeastInFlight`] compares.
const COMPARED_MAX: usize = 64;

/// A shared subscription: the sessions that subscribed to `$share/{name}/{filter}`.
///
/// A [`super::Route`] refers to the group, not to a copy of its members: a member that joins or leaves is seen by the
/// next [`Self::pick`], even through routes made before.
pub struct SharedGroup<S> {
    name: Box<str>,
    filter: Box<str>,
    /// Copied on write, but only while a reader holds it.
    members: RwLock<Arc<Roster<S>>>,
    cursor: AtomicUsize,
}

impl<S: Subscriber> SharedGroup<S> {
    pub(super) fn new(name: &str, filter: &str) -> Self {
        Self {
            name: name.into(),
            filter: filter.into(),
            members: RwLock::default(),
            cursor: AtomicUsize::new(0),
        }
    }

    /// The ShareName.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The topic filter after the ShareName.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// The members at this moment, in no particular order.
    pub fn members(&self) -> Members<S> {
        Members(Arc::clone(&self.members.read()))
    }

    /// Chooses the member that gets the next message. Returns `None` only if all members have left or are gone.
    ///
    /// `load` tells whether a member can take a message. Members that can take it now are preferred. If there are none,
    /// the strategy chooses among those that can take it later, and the message waits for that member. `hash` is used
    /// by [`Strategy::Hash`] only. No lock is held while `load` runs.
    pub fn pick(
        &self,
        strategy: Strategy,
        hash: u64,
        load: impl Fn(&S) -> Load,
    ) -> Option<Member<S>> {
        let members = self.members();
        if members.is_empty() {
            return None;
        }
        let from = |start| members.from(start).map(|member| (load(&member.subscriber), member));
        let is_there = |(load, _): &(Load, &Member<S>)| *load != Load::Gone;
        let chosen = match strategy {
            Strategy::RoundRobin => {
                let mut turn = from(self.next());
                let ready = turn.clone().find(|(load, _)| matches!(load, Load::InFlight(_)));
                ready.or_else(|| turn.find(is_there))
            }
            Strategy::LeastInFlight => {
                from(self.next()).filter(is_there).take(COMPARED_MAX).min_by_key(|(load, _)| *load)
            }
            Strategy::Hash => from(0).filter(is_there).max_by_key(|(load, member)| {
                let weight = Hashing::with_seed(hash).number(member.subscriber.key());
                (*load != Load::Away, weight)
            }),
        };
        chosen.map(|(_, member)| member.clone())
    }

    pub(super) fn member(&self, key: u64) -> Option<Member<S>> {
        let members = self.members.read();
        members.position(key).map(|at| members.members()[at].clone())
    }

    pub(super) fn insert(&self, member: Member<S>) -> Option<Member<S>> {
        Arc::make_mut(&mut self.members.write()).insert(member)
    }

    pub(super) fn remove(&self, key: u64) -> Option<Member<S>> {
        let mut members = self.members.write();
        members.position(key)?;
        Arc::make_mut(&mut members).remove(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.read().is_empty()
    }

    fn next(&self) -> usize {
        self.cursor.fetch_add(1, Ordering::Relaxed)
    }
}

/// The members of a [`SharedGroup`] at one moment.
pub struct Members<S>(Arc<Roster<S>>);

impl<S: Subscriber> Members<S> {
    /// All members once, starting with the `start`-th (modulo their number).
    fn from(&self, start: usize) -> impl Iterator<Item = &Member<S>> + Clone {
        let (before, after) = self.split_at(start % self.len());
        after.iter().chain(before)
    }
}

impl<S: Subscriber> Deref for Members<S> {
    type Target = [Member<S>];

    fn deref(&self) -> &[Member<S>] {
        self.0.members()
    }
}
