//! The retained messages of one tenant, with their number and size against the limits. Those of the broker
//! are counted separately.

use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::message::Message;
use barid_core::retained::{RetainedStore, Walked};
use barid_core::time::MonoTime;

use crate::limits::Limits;
use crate::names::is_sys;

/// Approximate memory of a retained message besides its bytes and the [copies](COPIES) of its topic, in
/// bytes: the message itself, its place in the tree, and the levels through which it is found.
const OVERHEAD: usize = 240;

/// Number of further copies of the topic: one in the tree, and one as a key of the store.
const COPIES: usize = 2;

/// Maximum number of steps under one lock: they take some tenths of a millisecond.
pub const STEPS: usize = 1_000;

/// The retained messages of one tenant.
pub struct Retained {
    store: RetainedStore<Arc<Message>>,
    /// Number of retained messages of the broker (`$SYS`).
    own: usize,
    /// Memory of the other messages, approximately, in bytes.
    bytes: usize,
}

impl Retained {
    /// Creates an empty set. For the seed, see [`RetainedStore::with_seed`].
    pub fn with_seed(seed: u64) -> Self {
        Self { store: RetainedStore::with_seed(seed), own: 0, bytes: 0 }
    }

    /// Number of retained messages, without those of the broker.
    pub fn count(&self) -> usize {
        self.store.len() - self.own
    }

    /// Memory of the messages that [`Self::count`] counts, approximately, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The retained message of a topic.
    pub fn get(&self, topic: &str) -> Option<&Arc<Message>> {
        self.store.get(topic)
    }

    /// Checks whether the limits allow a message to become the retained message of its topic.
    pub fn admits(&self, message: &Message, limits: &Limits) -> Result<(), DropReason> {
        let topic = message.publication().topic;
        if is_sys(topic) {
            return Ok(());
        }
        let present = self.store.get(topic).map(|present| weight(present));
        if present.is_none() && self.count() >= limits.max_retained_messages {
            return Err(DropReason::RetainedMessages);
        }
        let (before, after) = (present.unwrap_or(0), weight(message));
        // A message that is no larger than the present one is always admitted.
        if after > before && self.bytes - before + after > limits.max_retained_bytes {
            return Err(DropReason::RetainedBytes);
        }
        Ok(())
    }

    /// Makes a message the retained message of its topic.
    pub fn set(&mut self, message: &Arc<Message>) {
        let added = weight(message);
        let own = is_sys(message.publication().topic);
        let replaced = self.store.set(message.publication().topic, Arc::clone(message));
        match (own, &replaced) {
            (true, None) => self.own += 1,
            (true, Some(_)) => {}
            (false, replaced) => {
                self.bytes += added;
                self.bytes -= replaced.as_ref().map_or(0, |replaced| weight(replaced));
            }
        }
    }

    /// Removes the retained message of a topic.
    pub fn remove(&mut self, topic: &str) {
        if let Some(removed) = self.store.remove(topic) {
            self.forget(&removed);
        }
    }

    /// Examines at most [`STEPS`] messages after a topic, and removes the expired ones. `expired` is called
    /// with the topic of each.
    pub fn remove_expired(
        &mut self,
        after: Option<&str>,
        now: MonoTime,
        mut expired: impl FnMut(&str),
    ) -> Walked {
        let mut removed = Vec::new();
        let walked = self.store.retain(after, STEPS, |topic, message| {
            let keep = !message.is_expired(now);
            if !keep {
                expired(topic);
                removed.push(Arc::clone(message));
            }
            keep
        });
        removed.iter().for_each(|message| self.forget(message));
        walked
    }

    /// Whether a filter may match a retained message. False is certain. True is also returned if a few steps
    /// do not suffice to decide.
    pub fn may_match(&self, filter: &str) -> bool {
        let mut few = 16;
        self.store.walk(filter, None, &mut few, |_, _| ControlFlow::Break(())) != Walked::All
    }

    /// See [`RetainedStore::walk`].
    pub fn walk(
        &self,
        filter: &str,
        after: Option<&str>,
        steps: &mut usize,
        found: impl FnMut(&str, &Arc<Message>) -> ControlFlow<()>,
    ) -> Walked {
        self.store.walk(filter, after, steps, found)
    }

    fn forget(&mut self, removed: &Message) {
        if is_sys(removed.publication().topic) {
            self.own -= 1;
        } else {
            self.bytes -= weight(removed);
        }
    }
}

fn weight(message: &Message) -> usize {
    OVERHEAD + message.size() + COPIES * message.publication().topic.len()
}

#[cfg(test)]
mod tests {
    use barid_core::message::Publication;
    use mqtt_proto::QoS;

    use super::*;

    fn message(topic: &str, payload: usize) -> Arc<Message> {
        Arc::new(Message::new(&Publication {
            topic,
            payload: &vec![b'x'; payload],
            properties: &[],
            qos: QoS::AtMostOnce,
            retain: true,
            expires_at: (payload == 7).then(|| MonoTime::from_millis(1)),
        }))
    }

    #[test]
    fn what_is_counted_is_what_is_there() {
        let mut retained = Retained::with_seed(1);
        let own = "$SYS/x";
        for (topic, payload) in [("a", 1), ("a", 100), ("b", 7), (own, 9), ("c", 5)] {
            retained.set(&message(topic, payload));
        }
        let weighs =
            |payloads: &[usize]| payloads.iter().map(|n| OVERHEAD + n + 1 + COPIES).sum::<usize>();
        assert_eq!((retained.count(), retained.bytes()), (3, weighs(&[100, 7, 5])));
        let mut expired = Vec::new();
        let now = MonoTime::from_millis(2);
        let walked = retained.remove_expired(None, now, |topic| expired.push(topic.to_owned()));
        assert_eq!((walked, expired), (Walked::All, vec!["b".to_owned()]));
        retained.remove("a");
        retained.remove(own);
        assert_eq!((retained.count(), retained.bytes()), (1, weighs(&[5])));
    }

    #[test]
    fn both_bounds_hold_for_new_messages_and_larger_ones() {
        let mut retained = Retained::with_seed(1);
        retained.set(&message("a", 100));
        let bytes = retained.bytes();
        let limits = |max_retained_messages, max_retained_bytes| Limits {
            max_retained_messages,
            max_retained_bytes,
            ..Limits::default()
        };
        let admits = |topic: &str, payload, limits: &Limits| {
            retained.admits(&message(topic, payload), limits)
        };
        assert_eq!(admits("b", 1, &limits(1, 1_000_000)), Err(DropReason::RetainedMessages));
        assert_eq!(admits("a", 1_000, &limits(1, 1_000_000)), Ok(()));
        assert_eq!(admits("a", 101, &limits(9, bytes)), Err(DropReason::RetainedBytes));
        assert_eq!(admits("a", 99, &limits(9, 10)), Ok(()), "it becomes less");
        assert_eq!(admits("b", 1, &limits(9, bytes)), Err(DropReason::RetainedBytes));
        assert_eq!(admits("$SYS/x", 9, &limits(0, 0)), Ok(()));
    }
}
