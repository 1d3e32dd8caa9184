//! Routes: the answers of the index for one topic each.

use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::HashMap;
use mqtt_proto::QoS;
use smallvec::SmallVec;

use super::epochs::Stamp;
use super::hashing::KeyHasher;
use super::{Matching, Member, SharedGroup, Subscriber, TopicIndex};

/// Number of recipients up to which sessions with several matching subscriptions are found by comparing one by one.
const COMPARED_MAX: usize = 16;

/// The recipients of a message published to one topic. Immutable; may be cached per topic as long as
/// [`Self::is_current`].
pub struct Route<S> {
    recipients: Box<[Recipient<S>]>,
    groups: Box<[Arc<SharedGroup<S>>]>,
    stamp: Stamp,
}

/// A session that gets the message, with all its matching subscriptions combined, because it gets one copy (MQTT 5
/// §3.3.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipient<S> {
    /// The session.
    pub subscriber: S,
    /// The highest QoS of the matching subscriptions.
    pub qos: QoS,
    /// Whether the session does not get its own messages: only if every matching subscription has No Local, since any
    /// other subscription requests them.
    pub no_local: bool,
    /// Whether only some of the matching subscriptions have No Local. Then the other fields are not valid for the
    /// session's own messages.
    pub partly_no_local: bool,
    /// Whether the RETAIN flag is forwarded as published: if any of the subscriptions requests it.
    pub retain_as_published: bool,
    /// The Subscription Identifiers of all matching subscriptions.
    pub identifiers: Identifiers,
}

/// The Subscription Identifiers that go with a message to one session, in no particular order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identifiers(Held);

/// Nearly always none or one, which needs no allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Held {
    #[default]
    None,
    One(NonZeroU32),
    /// Boxed to keep a recipient small.
    Many(Box<SmallVec<[NonZeroU32; 4]>>),
}

impl<S: Subscriber> Route<S> {
    /// The sessions that get a copy each; each session is listed once.
    pub fn recipients(&self) -> &[Recipient<S>] {
        &self.recipients
    }

    /// The shared subscriptions; one member of each gets a copy.
    pub fn groups(&self) -> &[Arc<SharedGroup<S>>] {
        &self.groups
    }

    /// Whether the message has no recipients.
    pub fn is_empty(&self) -> bool {
        self.recipients.is_empty() && self.groups.is_empty()
    }

    /// Returns whether `index`, which made this route, would give the same answer now. Costs five loads and no lock. A
    /// change is visible at the latest to a thread that knows that the call which made it has returned.
    pub fn is_current(&self, index: &TopicIndex<S>) -> bool {
        index.epochs.is_current(&self.stamp)
    }

    pub(super) fn new(stamp: Stamp, found: &Matching<'_, S>) -> Self {
        let groups = found.iter().flat_map(|set| set.groups()).cloned().collect();
        Self { recipients: merge(found), groups, stamp }
    }
}

impl<S: Subscriber> Route<S> {
    /// Makes the route of the subscriptions that count, and of all shared ones.
    pub(super) fn of(stamp: Stamp, found: &Matching<'_, S>, counts: impl Fn(&S) -> bool) -> Self {
        let mut recipients: Vec<Recipient<S>> = Vec::new();
        let members = found.iter().flat_map(|set| set.plain());
        for member in members.filter(|member| counts(&member.subscriber)) {
            let key = member.subscriber.key();
            match recipients.iter_mut().find(|recipient| recipient.subscriber.key() == key) {
                Some(recipient) => recipient.absorb(member),
                None => recipients.push(member.into()),
            }
        }
        let groups = found.iter().flat_map(|set| set.groups()).cloned().collect();
        Self { recipients: recipients.into(), groups, stamp }
    }
}

impl<S: Subscriber> Recipient<S> {
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

impl<S: Subscriber> From<&Member<S>> for Recipient<S> {
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
    /// All identifiers.
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

/// Makes one recipient per session. The largest set, which may have 100,000 members, is copied as it is, and its own index
/// tells whether it contains the members of the others.
fn merge<S: Subscriber>(found: &Matching<'_, S>) -> Box<[Recipient<S>]> {
    let Some(largest) = (0..found.len()).max_by_key(|&at| found[at].plain().len()) else {
        return Box::default();
    };
    let others = || {
        let others = found.iter().enumerate().filter(|&(at, _)| at != largest);
        others.flat_map(|(_, set)| set.plain())
    };
    let largest = found[largest];
    // All keys are read before the first subscriber is cloned: reads can wait for memory in parallel, while each
    // increment of a reference count makes all following instructions wait.
    let keys: SmallVec<[u64; COMPARED_MAX]> =
        others().map(|member| member.subscriber.key()).collect();
    let mut recipients = Vec::with_capacity(largest.plain().len() + keys.len());
    recipients.extend(largest.plain().iter().map(Recipient::from));
    let mut added = Added::after(recipients.len());
    for (member, key) in others().zip(keys) {
        match largest.position(key).or_else(|| added.position(key)) {
            Some(at) => recipients[at].absorb(member),
            None => {
                added.push(key);
                recipients.push(Recipient::from(member));
            }
        }
    }
    recipients.into_boxed_slice()
}

/// Positions by key of the recipients that follow those of the largest set.
struct Added {
    first: usize,
    keys: SmallVec<[u64; COMPARED_MAX]>,
    /// Filled when there are too many recipients to compare one by one.
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
