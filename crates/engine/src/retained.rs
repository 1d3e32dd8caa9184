//! The retained messages of one tenant: how many there are, what they weigh, and whose they are.

use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::message::Message;
use barid_core::retained::{RetainedStore, Walked};
use barid_core::time::MonoTime;

use crate::limits::Limits;
use crate::names::is_sys;

/// About what a retained message takes besides its bytes and [copies](COPIES) of its topic: itself, its place in the
/// tree, and the levels that are found by it.
const OVERHEAD: usize = 240;

/// How often its topic is there besides: in the tree and as a key of the store.
const COPIES: usize = 2;

/// Steps that are made under one lock: some tenths of a millisecond.
pub const STEPS: usize = 1_000;

/// The retained messages of one tenant.
pub struct Retained {
    store: RetainedStore<Arc<Message>>,
    /// How many of them are the broker's own (`$SYS`).
    own: usize,
    /// What the others weigh, in bytes.
    bytes: usize,
}

impl Retained {
    /// None yet. See [`RetainedStore::with_seed`] for the seed.
    pub fn with_seed(seed: u64) -> Self {
        Self { store: RetainedStore::with_seed(seed), own: 0, bytes: 0 }
    }

    /// How many messages clients have left.
    pub fn count(&self) -> usize {
        self.store.len() - self.own
    }

    /// What these take of memory, in bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message of a topic.
    pub fn get(&self, topic: &str) -> Option<&Arc<Message>> {
        self.store.get(topic)
    }

    /// Whether a message may become that of its topic.
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
        // What makes it less is always taken.
        if after > before && self.bytes - before + after > limits.max_retained_bytes {
            return Err(DropReason::RetainedBytes);
        }
        Ok(())
    }

    /// Makes a message that of its topic.
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

    /// Removes the message of a topic.
    pub fn remove(&mut self, topic: &str) {
        if let Some(removed) = self.store.remove(topic) {
            self.forget(&removed);
        }
    }

    /// Looks at some of the messages after a topic, and removes those that have expired, each told to `expired`.
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

    /// Whether a filter may match something. "No" is certain; a filter for which that cannot be said in a few steps
    /// may match.
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
