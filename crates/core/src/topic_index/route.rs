//! The answer of the index for one topic.

use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::HashMap;
use mqtt_proto::QoS;
use smallvec::SmallVec;

use super::epochs::Stamp;
use super::hashing::KeyHasher;
use super::{Matching, Member, SharedGroup, Subscriber, TopicIndex};

/// Up to this many targets are compared one by one to find the sessions that match twice.
const COMPARED_MAX: usize = 16;

/// Who gets a message published to one topic. Immutable; worth keeping per topic for as long as
/// [`Self::is_current`].
pub struct Route<S> {
    targets: Box<[Target<S>]>,
    groups: Box<[Arc<SharedGroup<S>>]>,
    stamp: Stamp,
}

/// A session that gets the message, and how: all its matching subscriptions in one, because it
/// gets one copy (MQTT 5 §3.3.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target<S> {
    /// The session.
    pub subscriber: S,
    /// The highest QoS of the subscriptions.
    pub qos: QoS,
    /// Whether the session's own messages are kept from it: only when every matching subscription
    /// has No Local, since any other one asks for them.
    pub no_local: bool,
    /// Whether some matching subscriptions have No Local and some do not: then the other fields are not
    /// those for the session's own messages.
    pub partly_no_local: bool,
    /// Whether the RETAIN flag is forwarded as published: when any of the subscriptions asks so.
    pub retain_as_published: bool,
    /// The Subscription Identifiers of all of them.
    pub identifiers: Identifiers,
}

/// The Subscription Identifiers that go with a message to one session, in no particular order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identifiers(Held);

/// Nearly always none or one, which costs no allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Held {
    #[default]
    None,
    One(NonZeroU32),
    /// Boxed so that a target stays small.
    Many(Box<SmallVec<[NonZeroU32; 4]>>),
}

impl<S: Subscriber> Route<S> {
    /// The sessions that get a copy each; every session once.
    pub fn targets(&self) -> &[Target<S>] {
        &self.targets
    }

    /// The shared subscriptions, of each of which one member gets a copy.
    pub fn groups(&self) -> &[Arc<SharedGroup<S>>] {
        &self.groups
    }

    /// Whether nobody gets the message.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.groups.is_empty()
    }

    /// Whether `index`, which made this route, would answer the same now. Costs five loads and no
    /// lock. A change is seen at the latest by whoever learns that the call that made it returned.
    pub fn is_current(&self, index: &TopicIndex<S>) -> bool {
        index.epochs.is_current(&self.stamp)
    }

    pub(super) fn new(stamp: Stamp, found: &Matching<'_, S>) -> Self {
        let groups = found.iter().flat_map(|set| set.groups()).cloned().collect();
        Self { targets: merge(found), groups, stamp }
    }
}

impl<S: Subscriber> Target<S> {
    fn absorb(&mut self, member: &Member<S>) {
        let options = &member.options;
        self.qos = self.qos.max(options.qos);
        self.partly_no_local |= self.no_local != options.no_local;
        self.no_local &= options.no_local;
        self.retain_as_published |= options.retain_as_published;
        if let Some(identifier) = options.identifier {
            self.identifiers.add(identifier);
        }
    }
}

impl<S: Subscriber> From<&Member<S>> for Target<S> {
    fn from(member: &Member<S>) -> Self {
        Self {
            subscriber: member.subscriber.clone(),
            qos: member.options.qos,
            no_local: member.options.no_local,
            partly_no_local: false,
            retain_as_published: member.options.retain_as_published,
            identifiers: Identifiers(member.options.identifier.map_or(Held::None, Held::One)),
        }
    }
}

impl Identifiers {
    /// All of them.
    pub fn as_slice(&self) -> &[NonZeroU32] {
        match &self.0 {
            Held::None => &[],
            Held::One(one) => std::slice::from_ref(one),
            Held::Many(many) => many,
        }
    }

    fn add(&mut self, identifier: NonZeroU32) {
        match &mut self.0 {
            Held::None => self.0 = Held::One(identifier),
            Held::One(one) => {
                self.0 = Held::Many(Box::new(SmallVec::from_slice(&[*one, identifier])))
            }
            Held::Many(many) => many.push(identifier),
        }
    }
}

/// One target per session. The largest set, which may have 100,000 members, is copied as it is and
/// asked by its own index whether it holds the members of the others.
fn merge<S: Subscriber>(found: &Matching<'_, S>) -> Box<[Target<S>]> {
    let Some(largest) = (0..found.len()).max_by_key(|&at| found[at].plain().len()) else {
        return Box::default();
    };
    let others = || {
        let others = found.iter().enumerate().filter(|&(at, _)| at != largest);
        others.flat_map(|(_, set)| set.plain())
    };
    let largest = found[largest];
    // Every key is read before the first subscriber is cloned: reads can wait for memory all at
    // once, while counting up a reference makes all that follow wait.
    let keys: SmallVec<[u64; COMPARED_MAX]> =
        others().map(|member| member.subscriber.key()).collect();
    let mut targets = Vec::with_capacity(largest.plain().len() + keys.len());
    targets.extend(largest.plain().iter().map(Target::from));
    let mut added = Added::after(targets.len());
    for (member, key) in others().zip(keys) {
        match largest.position(key).or_else(|| added.position(key)) {
            Some(at) => targets[at].absorb(member),
            None => {
                added.push(key);
                targets.push(Target::from(member));
            }
        }
    }
    targets.into_boxed_slice()
}

/// Where the targets are that come after the largest set's, by key.
struct Added {
    first: usize,
    keys: SmallVec<[u64; COMPARED_MAX]>,
    /// Filled when there are too many to compare one by one.
    positions: HashMap<u64, usize, KeyHasher>,
}

impl Added {
    fn after(first: usize) -> Self {
        Self { first, keys: SmallVec::new(), positions: HashMap::default() }
    }

    fn position(&self, key: u64) -> Option<usize> {
        if self.positions.is_empty() {
            return self.keys.iter().position(|&other| other == key).map(|at| self.first + at);
        }
        self.positions.get(&key).copied()
    }

    fn push(&mut self, key: u64) {
        self.keys.push(key);
        if self.keys.len() > COMPARED_MAX {
            let unindexed = self.positions.len()..self.keys.len();
            self.positions.extend(unindexed.map(|at| (self.keys[at], self.first + at)));
        }
    }
}
