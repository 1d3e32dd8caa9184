//! The retained messages of one tenant, with their number and size against the limits: for the tenant, and for the user
//! who has set each. Those of the broker are counted separately.

use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::durable::RetainedRecord;
use barid_core::holder::{Held, Holder};
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
    store: RetainedStore<RetainedRecord>,
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
        self.store.get(topic).map(|record| &record.message)
    }

    /// Checks whether the limits allow a message of a user to become the retained message of its topic.
    pub fn admits(
        &self,
        message: &Message,
        user: Option<&Arc<Holder>>,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        let topic = message.publication().topic;
        if is_sys(topic) {
            return Ok(());
        }
        let present = self.store.get(topic);
        if present.is_none() && self.count() >= limits.max_retained_messages {
            return Err(DropReason::RetainedMessages);
        }
        let (before, after) =
            (present.map_or(0, weight_of), weight(message, user.map(|user| &**user)));
        // A message that is no larger than the present one is always admitted.
        if after > before && self.bytes - before + after > limits.max_retained_bytes {
            return Err(DropReason::RetainedBytes);
        }
        let Some(user) = user else { return Ok(()) };
        let is_theirs = present
            .and_then(|present| present.holder.as_ref())
            .is_some_and(|of| Arc::ptr_eq(of, user));
        let before = if is_theirs { before } else { 0 };
        if !is_theirs && user.room(Held::RetainedMessages, limits.max_user_retained_messages) == 0 {
            return Err(DropReason::UserRetainedMessages);
        }
        let room = user.room(Held::RetainedBytes, limits.max_user_retained_bytes);
        if after > before && (after - before) as u64 > room {
            return Err(DropReason::UserRetainedBytes);
        }
        Ok(())
    }

    /// Makes a message the retained message of its topic.
    pub fn set(&mut self, record: RetainedRecord) {
        let message = Arc::clone(&record.message);
        let topic = message.publication().topic;
        if is_sys(topic) {
            self.own += usize::from(self.store.set(topic, record).is_none());
            return;
        }
        let added = weight_of(&record);
        self.bytes += added;
        if let Some(holder) = &record.holder {
            holder.add(Held::RetainedMessages, 1);
            holder.add(Held::RetainedBytes, added as u64);
        }
        if let Some(replaced) = self.store.set(topic, record) {
            self.forget(&replaced);
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
        let walked = self.store.retain(after, STEPS, |topic, record| {
            let keep = !record.message.is_expired(now);
            if !keep {
                expired(topic);
                removed.push(record.clone());
            }
            keep
        });
        removed.iter().for_each(|record| self.forget(record));
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
        mut found: impl FnMut(&str, &Arc<Message>) -> ControlFlow<()>,
    ) -> Walked {
        self.store.walk(filter, after, steps, |topic, record| found(topic, &record.message))
    }

    fn forget(&mut self, removed: &RetainedRecord) {
        if is_sys(removed.message.publication().topic) {
            self.own -= 1;
            return;
        }
        let weight = weight_of(removed);
        self.bytes -= weight;
        if let Some(holder) = &removed.holder {
            holder.give_back(Held::RetainedMessages, 1);
            holder.give_back(Held::RetainedBytes, weight as u64);
        }
    }
}

fn weight_of(record: &RetainedRecord) -> usize {
    weight(&record.message, record.holder.as_deref())
}

fn weight(message: &Message, user: Option<&Holder>) -> usize {
    // The name of the user is a part of each of its records.
    let name = user.map_or(0, |user| user.name().len());
    OVERHEAD + message.size() + COPIES * message.publication().topic.len() + name
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

    fn plain(topic: &str, payload: usize) -> RetainedRecord {
        RetainedRecord { message: message(topic, payload), holder: None }
    }

    #[test]
    fn what_is_counted_is_what_is_there() {
        let mut retained = Retained::with_seed(1);
        let own = "$SYS/x";
        for (topic, payload) in [("a", 1), ("a", 100), ("b", 7), (own, 9), ("c", 5)] {
            retained.set(plain(topic, payload));
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
        retained.set(plain("a", 100));
        let bytes = retained.bytes();
        let limits = |max_retained_messages, max_retained_bytes| Limits {
            max_retained_messages,
            max_retained_bytes,
            ..Limits::default()
        };
        let admits = |topic: &str, payload, limits: &Limits| {
            retained.admits(&message(topic, payload), None, limits)
        };
        assert_eq!(admits("b", 1, &limits(1, 1_000_000)), Err(DropReason::RetainedMessages));
        assert_eq!(admits("a", 1_000, &limits(1, 1_000_000)), Ok(()));
        assert_eq!(admits("a", 101, &limits(9, bytes)), Err(DropReason::RetainedBytes));
        assert_eq!(admits("a", 99, &limits(9, 10)), Ok(()), "it becomes less");
        assert_eq!(admits("b", 1, &limits(9, bytes)), Err(DropReason::RetainedBytes));
        assert_eq!(admits("$SYS/x", 9, &limits(0, 0)), Ok(()));
    }

    #[test]
    fn a_message_counts_for_the_user_who_has_set_it_last() {
        let mut retained = Retained::with_seed(1);
        let [ada, bob] = ["ada", "bob"].map(|name| Arc::new(Holder::new(name)));
        for user in [&ada, &bob] {
            user.set_own(&Default::default());
        }
        let weight = |payload| (OVERHEAD + payload + 1 + COPIES + "ada".len()) as u64;
        let limits = Limits {
            max_user_retained_messages: 2,
            max_user_retained_bytes: 2 * weight(10),
            ..Limits::default()
        };
        let by = |user: &Arc<Holder>, topic, payload| RetainedRecord {
            holder: Some(Arc::clone(user)),
            ..plain(topic, payload)
        };
        let held =
            |user: &Holder| (user.held(Held::RetainedMessages), user.held(Held::RetainedBytes));
        retained.set(by(&ada, "a", 10));
        retained.set(by(&ada, "b", 7));
        let admits = |retained: &Retained, user, topic, payload| {
            retained.admits(&message(topic, payload), user, &limits)
        };
        let too_many = Err(DropReason::UserRetainedMessages);
        assert_eq!(admits(&retained, Some(&ada), "c", 1), too_many);
        assert_eq!(admits(&retained, Some(&ada), "b", 10), Ok(()));
        let too_large = Err(DropReason::UserRetainedBytes);
        assert_eq!(admits(&retained, Some(&ada), "b", 11), too_large);
        assert_eq!(admits(&retained, None, "c", 100), Ok(()), "of no user");
        assert_eq!(admits(&retained, Some(&bob), "a", 10), Ok(()), "it is no longer ada's");
        retained.set(by(&bob, "a", 11));
        assert_eq!((held(&ada), held(&bob)), ((1, weight(7)), (1, weight(11))));
        retained.set(plain("a", 3));
        assert_eq!(held(&bob), (0, 0));
        let walked = retained.remove_expired(None, MonoTime::from_millis(2), |_| ());
        assert_eq!(walked, Walked::All);
        assert_eq!((held(&ada), retained.count()), ((0, 0), 1));
        retained.set(by(&ada, "$SYS/x", 1));
        assert!(ada.is_empty());
    }
}
