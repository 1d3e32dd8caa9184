//! The subscriptions of one session.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use barid_core::holder::{self, Holder};
use memchr::memchr_iter;
use mqtt_proto::{QoS, topic};

/// A subscription as its session remembers it, with all that is needed to remove it from the topic index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The Topic Filter as the client wrote it, `$share/…` included.
    pub filter: Box<str>,
    /// The granted QoS.
    pub qos: QoS,
    /// Whether messages that the session itself publishes are not delivered (No Local).
    pub no_local: bool,
    /// Whether the RETAIN flag is forwarded as published.
    pub retain_as_published: bool,
    /// The Subscription Identifier, if one was given.
    pub identifier: Option<NonZeroU32>,
}

/// Number of subscriptions from which a session keeps them in a hash map.
const MANY: usize = 32;

/// Approximate bytes that a subscription takes besides its filter: here, in the topic index and in the store.
const OVERHEAD: usize = 320;

/// Number of copies of a filter: here, in the topic index and as a key of the store.
const COPIES: usize = 4;

/// Approximate bytes that the topic index takes for a level of a filter with wildcards that no other filter
/// has.
const LEVEL: usize = 72;

/// The subscriptions of one session. Most sessions have very few, which take no more memory than they need;
/// some sessions have a hundred thousand.
#[derive(Debug, Default)]
pub struct Subscriptions {
    held: Held,
    bytes: usize,
    /// See [`Self::identifiers_for`].
    below: Option<Box<Below>>,
    /// The user for whom they count.
    holder: Option<Arc<Holder>>,
}

/// The Subscription Identifiers of the subscriptions that match topics with one parent.
#[derive(Debug)]
struct Below {
    /// All levels of these topics but the last.
    parent: Box<str>,
    /// Identifiers of the subscriptions that match whatever the last level is.
    any: Vec<NonZeroU32>,
    /// Identifiers of the subscriptions whose filter has the last level without wildcards, by that level.
    by_level: HashMap<String, Vec<NonZeroU32>>,
}

#[derive(Debug)]
enum Held {
    Few(Vec<Subscription>),
    #[expect(clippy::box_collection, reason = "few sessions have it, and all have the room for it")]
    Many(Box<HashMap<Box<str>, Subscription>>),
}

impl Default for Held {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Subscriptions {
    /// Returns the approximate memory that a subscription takes, in bytes. It takes less if other sessions
    /// have the same filter.
    pub fn cost(filter: &str) -> usize {
        let levels = if topic::has_wildcards(filter) {
            1 + memchr_iter(b'/', filter.as_bytes()).count()
        } else {
            0
        };
        OVERHEAD + COPIES * filter.len() + LEVEL * levels
    }

    /// Approximate memory that all subscriptions take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The user for whom the subscriptions count.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_deref()
    }

    /// Counts the subscriptions for a user from now on, and no longer for the previous one.
    pub(super) fn set_holder(&mut self, holder: Option<Arc<Holder>>) {
        let count = self.count() as u64;
        if let Some(before) = std::mem::replace(&mut self.holder, holder) {
            before.give_back(holder::Held::Subscriptions, count);
        }
        if let Some(holder) = &self.holder {
            holder.add(holder::Held::Subscriptions, count);
        }
    }

    /// Adds a subscription, or replaces the one with the same filter. Returns whether it is new.
    pub fn insert(&mut self, subscription: Subscription) -> bool {
        let cost = Self::cost(&subscription.filter);
        let is_new = self.held.insert(subscription);
        self.below = None;
        if is_new {
            self.bytes += cost;
            if let Some(holder) = &self.holder {
                holder.add(holder::Held::Subscriptions, 1);
            }
        }
        is_new
    }

    /// Removes the subscription with this filter. Returns false if there is none.
    pub fn remove(&mut self, filter: &str) -> bool {
        let was_there = self.held.remove(filter);
        self.below = None;
        if was_there {
            self.bytes -= Self::cost(filter);
            if let Some(holder) = &self.holder {
                holder.give_back(holder::Held::Subscriptions, 1);
            }
        }
        was_there
    }

    /// Returns the Subscription Identifiers of the subscriptions that match a topic. For the first topic of a
    /// parent, all subscriptions are checked; for the next ones, none are. A client may watch many keys, and
    /// have many subscriptions.
    pub fn identifiers_for(&mut self, topic: &str) -> Vec<NonZeroU32> {
        let Some((parent, level)) = topic.rsplit_once('/') else {
            return self.matching(topic).collect();
        };
        if self.below.as_ref().is_none_or(|below| *below.parent != *parent) {
            self.below = Some(Box::new(Below::of(self, parent)));
        }
        let below = self.below.as_ref().expect("it was just made");
        let exact = below.by_level.get(level).into_iter().flatten();
        below.any.iter().chain(exact).copied().collect()
    }

    fn matching<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = NonZeroU32> + 'a {
        let matching = self.iter().filter(|own| topic::matches(&own.filter, topic));
        matching.filter_map(|own| own.identifier)
    }

    /// Whether there is a subscription with this filter.
    pub fn contains(&self, filter: &str) -> bool {
        match &self.held {
            Held::Many(by_filter) => by_filter.contains_key(filter),
            Held::Few(few) => few.iter().any(|s| &*s.filter == filter),
        }
    }

    /// Number of subscriptions.
    pub fn count(&self) -> usize {
        match &self.held {
            Held::Many(by_filter) => by_filter.len(),
            Held::Few(few) => few.len(),
        }
    }

    /// The subscriptions, in no particular order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Subscription> + '_> {
        match &self.held {
            Held::Many(by_filter) => Box::new(by_filter.values()),
            Held::Few(few) => Box::new(few.iter()),
        }
    }
}

/// They count no longer.
impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.set_holder(None);
    }
}

impl IntoIterator for Subscriptions {
    type Item = Subscription;
    type IntoIter = Box<dyn Iterator<Item = Subscription> + Send>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.set_holder(None);
        match std::mem::take(&mut self.held) {
            Held::Many(by_filter) => Box::new(by_filter.into_values()),
            Held::Few(few) => Box::new(few.into_iter()),
        }
    }
}

impl Below {
    fn of(subscriptions: &Subscriptions, parent: &str) -> Self {
        let (mut any, mut by_level) = (Vec::new(), HashMap::new());
        let child = format!("{parent}/x");
        for subscription in subscriptions.iter() {
            let Some(identifier) = subscription.identifier else { continue };
            // `a/b/#` matches `a/b`, too (MQTT 5 §4.7.1.2).
            let filter = &*subscription.filter;
            match filter.strip_suffix("/#").unwrap_or(filter).rsplit_once('/') {
                Some((before, last))
                    if !topic::has_wildcards(last) && topic::matches(before, parent) =>
                {
                    by_level.entry(last.to_owned()).or_insert_with(Vec::new).push(identifier);
                }
                _ if topic::matches(filter, &child) => any.push(identifier),
                _ => {}
            }
        }
        Self { parent: parent.into(), any, by_level }
    }
}

impl Held {
    fn insert(&mut self, subscription: Subscription) -> bool {
        match self {
            Held::Many(by_filter) => {
                by_filter.insert(subscription.filter.clone(), subscription).is_none()
            }
            Held::Few(few) => {
                if let Some(same) = few.iter_mut().find(|s| s.filter == subscription.filter) {
                    *same = subscription;
                    return false;
                }
                if few.is_empty() {
                    few.reserve_exact(1);
                }
                few.push(subscription);
                if few.len() >= MANY {
                    let few = std::mem::take(few).into_iter();
                    let by_filter = few.map(|s| (s.filter.clone(), s)).collect();
                    *self = Held::Many(Box::new(by_filter));
                }
                true
            }
        }
    }

    fn remove(&mut self, filter: &str) -> bool {
        match self {
            Held::Many(by_filter) => by_filter.remove(filter).is_some(),
            Held::Few(few) => {
                let position = few.iter().position(|s| &*s.filter == filter);
                position.map(|position| few.swap_remove(position)).is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn subscription(filter: &str, qos: QoS) -> Subscription {
        Subscription {
            filter: filter.into(),
            qos,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        }
    }

    proptest! {
        #[test]
        fn identifiers_are_those_of_all_that_match(
            filters in vec("([ab+]/){0,3}[abx+#]", 0..60),
            topics in vec("([ab]/){0,3}[abx]", 1..6),
        ) {
            let mut subscriptions = Subscriptions::default();
            for (number, filter) in (1..).zip(&filters) {
                let identifier = NonZeroU32::new(number);
                let plain = subscription(filter, QoS::AtMostOnce);
                subscriptions.insert(Subscription { identifier, ..plain });
            }
            for topic in &topics {
                let sorted = |mut identifiers: Vec<NonZeroU32>| {
                    identifiers.sort_unstable();
                    identifiers
                };
                let expected = sorted(subscriptions.matching(topic).collect());
                prop_assert_eq!(sorted(subscriptions.identifiers_for(topic)), expected);
            }
            if let Some(filter) = filters.first() {
                subscriptions.remove(filter);
                let expected = subscriptions.matching(&topics[0]).count();
                prop_assert_eq!(subscriptions.identifiers_for(&topics[0]).len(), expected);
            }
        }
    }

    #[test]
    fn a_filter_is_held_once_however_many_there_are() {
        for count in [2, 10 * MANY] {
            let mut subscriptions = Subscriptions::default();
            for n in 0..count {
                assert!(subscriptions.insert(subscription(&n.to_string(), QoS::AtMostOnce)));
            }
            assert!(!subscriptions.insert(subscription("1", QoS::ExactlyOnce)));
            let ada = Arc::new(Holder::new("ada"));
            let held = || ada.held(holder::Held::Subscriptions) as usize;
            subscriptions.set_holder(Some(Arc::clone(&ada)));
            assert_eq!(held(), count);
            assert_eq!(subscriptions.count(), count);
            let costs = subscriptions.iter().map(|one| Subscriptions::cost(&one.filter));
            assert_eq!(subscriptions.bytes(), costs.sum::<usize>());
            let replaced = subscriptions.iter().find(|s| &*s.filter == "1").unwrap();
            assert_eq!(replaced.qos, QoS::ExactlyOnce);
            assert!(subscriptions.contains("1"));
            assert!(subscriptions.remove("1"));
            assert!(!subscriptions.remove("1"));
            assert_eq!(subscriptions.iter().count(), count - 1);
            for n in 0..count {
                subscriptions.remove(&n.to_string());
            }
            assert_eq!((subscriptions.count(), subscriptions.bytes()), (0, 0));
            assert_eq!(held(), 0);
            assert!(subscriptions.insert(subscription("1", QoS::AtMostOnce)));
            assert_eq!(held(), 1);
            assert_eq!((subscriptions.into_iter().count(), held()), (1, 0));
        }
    }
}
