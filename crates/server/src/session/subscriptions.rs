//! What one session has subscribed to.

use std::collections::HashMap;
use std::num::NonZeroU32;

use memchr::memchr_iter;
use mqtt_proto::{QoS, topic};

/// One subscription as the session remembers it: what is needed to take it out of the index again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The Topic Filter as the client wrote it, `$share/…` included.
    pub filter: Box<str>,
    /// The QoS granted.
    pub qos: QoS,
    /// Whether the session's own messages are kept from it.
    pub no_local: bool,
    /// Whether the RETAIN flag is forwarded as published.
    pub retain_as_published: bool,
    /// The Subscription Identifier, if one was given.
    pub identifier: Option<NonZeroU32>,
}

/// From this many subscriptions on, they are found by hash.
const MANY: usize = 32;

/// About what a subscription takes besides its filter: here, in the index and in the store.
const OVERHEAD: usize = 384;

/// How often a filter is there: here, in the index and as a key of the store.
const COPIES: usize = 4;

/// About what the index takes for a level of a filter with wildcards that no other filter has.
const LEVEL: usize = 80;

/// The subscriptions of one session. Most sessions have very few, so those take no more memory than they
/// need; some have a hundred thousand.
#[derive(Debug, Default)]
pub struct Subscriptions {
    held: Held,
    bytes: usize,
}

#[derive(Debug)]
enum Held {
    Few(Vec<Subscription>),
    Many(HashMap<Box<str>, Subscription>),
}

impl Default for Held {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Subscriptions {
    /// About what a subscription takes of memory, in bytes; less, where others have the same filter.
    pub fn cost(filter: &str) -> usize {
        let levels = if topic::has_wildcards(filter) {
            1 + memchr_iter(b'/', filter.as_bytes()).count()
        } else {
            0
        };
        OVERHEAD + COPIES * filter.len() + LEVEL * levels
    }

    /// About what all of them take of memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one, or replaces the one with the same filter. True: it is new.
    pub fn insert(&mut self, subscription: Subscription) -> bool {
        let cost = Self::cost(&subscription.filter);
        let is_new = self.held.insert(subscription);
        self.bytes += if is_new { cost } else { 0 };
        is_new
    }

    /// Removes the one with this filter. False: there is none.
    pub fn remove(&mut self, filter: &str) -> bool {
        let was_there = self.held.remove(filter);
        self.bytes -= if was_there { Self::cost(filter) } else { 0 };
        was_there
    }

    /// Whether there is one with this filter.
    pub fn contains(&self, filter: &str) -> bool {
        match &self.held {
            Held::Many(by_filter) => by_filter.contains_key(filter),
            Held::Few(few) => few.iter().any(|s| &*s.filter == filter),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.held {
            Held::Many(by_filter) => by_filter.len(),
            Held::Few(few) => few.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, in no particular order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Subscription> + '_> {
        match &self.held {
            Held::Many(by_filter) => Box::new(by_filter.values()),
            Held::Few(few) => Box::new(few.iter()),
        }
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
                    *self = Held::Many(few.map(|s| (s.filter.clone(), s)).collect());
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

    #[test]
    fn a_filter_is_held_once_however_many_there_are() {
        for count in [2, 10 * MANY] {
            let mut subscriptions = Subscriptions::default();
            for n in 0..count {
                assert!(subscriptions.insert(subscription(&n.to_string(), QoS::AtMostOnce)));
            }
            assert!(!subscriptions.insert(subscription("1", QoS::ExactlyOnce)));
            assert_eq!(subscriptions.len(), count);
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
            assert_eq!((subscriptions.len(), subscriptions.bytes()), (0, 0));
        }
    }
}
