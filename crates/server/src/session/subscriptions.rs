//! What one session has subscribed to.

use std::num::NonZeroU32;

use mqtt_proto::QoS;

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

/// The subscriptions of one session, sorted by filter: most sessions have very few, some thousands.
#[derive(Debug, Default)]
pub struct Subscriptions(Vec<Subscription>);

impl Subscriptions {
    /// Adds one, or replaces the one with the same filter. True: it is new.
    pub fn insert(&mut self, subscription: Subscription) -> bool {
        match self.position(&subscription.filter) {
            Ok(index) => {
                self.0[index] = subscription;
                false
            }
            Err(index) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(index, subscription);
                true
            }
        }
    }

    /// Removes the one with this filter. False: there is none.
    pub fn remove(&mut self, filter: &str) -> bool {
        self.position(filter).map(|index| self.0.remove(index)).is_ok()
    }

    /// Whether there is one with this filter.
    pub fn contains(&self, filter: &str) -> bool {
        self.position(filter).is_ok()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by filter.
    pub fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.0.iter()
    }

    fn position(&self, filter: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|subscription| (*subscription.filter).cmp(filter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_held_once() {
        let subscription = |filter: &str, qos| Subscription {
            filter: filter.into(),
            qos,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let mut subscriptions = Subscriptions::default();
        assert!(subscriptions.insert(subscription("b", QoS::AtMostOnce)));
        assert!(subscriptions.insert(subscription("a", QoS::AtMostOnce)));
        assert!(!subscriptions.insert(subscription("b", QoS::ExactlyOnce)));
        assert_eq!(subscriptions.iter().map(|s| &*s.filter).collect::<Vec<_>>(), ["a", "b"]);
        assert!(subscriptions.contains("b"));
        assert!(subscriptions.remove("b"));
        assert!(!subscriptions.remove("b"));
        assert_eq!(subscriptions.len(), 1);
    }
}
