//! The retained messages of one tenant, with their number and size against the limits: for the tenant, and for the user
//! who has set each. Those of the broker are counted separately. In a cluster, all brokers have the others.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use barid_core::drop_reason::DropReason;
use barid_core::durable::RetainedRecord;
use barid_core::holder::{Held, Holder};
use barid_core::message::{Message, Publication};
use barid_core::retained::{RetainedStore, Walked};
use barid_core::stamp::Stamp;
use barid_core::time::MonoTime;
use mqtt_proto::QoS;

use crate::limits::Limits;
use crate::names::is_sys;
use crate::replicated::{self, OfTenant};

/// Approximate memory of a retained message besides its bytes and the [copies](COPIES) of its topic, in
/// bytes: the message itself, its place in the tree, and the levels through which it is found.
const OVERHEAD: usize = 240;

/// Number of further copies of the topic: one in the tree, and one as a key of the store.
const COPIES: usize = 2;

/// Maximum number of tombstones, and of bytes of their topics. A client can make many in a short time: beyond the bounds a
/// removal leaves none, and a broker that is away may bring the message back.
const TOMBSTONES_MAX: usize = 100_000;
const TOMBSTONE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of steps under one lock: they take some tenths of a millisecond.
pub const STEPS: usize = 1_000;

/// The retained messages of one tenant.
pub struct Retained {
    store: RetainedStore<RetainedRecord>,
    /// Number of retained messages of the broker (`$SYS`).
    own: usize,
    /// Memory of the other messages, approximately, in bytes.
    bytes: usize,
    /// The topics whose retained messages were removed, as long as other brokers may have replicas of them.
    tombstones: BTreeMap<Box<str>, Stamp>,
    /// Bytes of these topics.
    tombstone_bytes: usize,
    /// The replicas that other brokers have; `None`: there is no cluster.
    replicas: Option<OfTenant>,
}

impl Retained {
    /// Creates an empty set. For the seed, see [`RetainedStore::with_seed`]. `replicas`: those that other brokers of a
    /// cluster have.
    pub(crate) fn new(seed: u64, replicas: Option<OfTenant>) -> Self {
        let store = RetainedStore::with_seed(seed);
        Self { store, own: 0, bytes: 0, tombstones: BTreeMap::new(), tombstone_bytes: 0, replicas }
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

    /// Returns the stamp of a change of the retained message of a topic that is made now; [`Stamp::NONE`] if no other
    /// broker has replicas.
    pub(crate) fn new_stamp(&self, topic: &str) -> Stamp {
        let replicas = OfTenant::of(&self.replicas, topic);
        replicas.map_or(Stamp::NONE, |replicas| replicas.replicated.stamp())
    }

    /// Whether there is room for the tombstone of a topic.
    pub(crate) fn can_bury(&self, topic: &str) -> bool {
        self.tombstones.contains_key(topic)
            || (self.tombstones.len() < TOMBSTONES_MAX
                && self.tombstone_bytes + topic.len() <= TOMBSTONE_BYTES_MAX)
    }

    /// Notes the stamp of a change that was not made here.
    pub(crate) fn see(&self, stamp: Stamp) {
        if let Some(replicas) = &self.replicas {
            replicas.replicated.see(stamp);
        }
    }

    /// Tells the other brokers of a change of the retained message of a topic of which they do not hear as a message.
    pub(crate) fn tell(&self, topic: &str) {
        if let Some(replicas) = OfTenant::of(&self.replicas, topic) {
            replicas.replicated.tell(replicated::retained(&replicas.tenant, topic));
        }
    }

    /// Whether a change is later than all known ones of the retained message of its topic, which has replicas.
    pub(crate) fn is_later(&self, topic: &str, stamp: Stamp) -> bool {
        let present = self.store.get(topic).map(|record| record.stamp);
        let last = present.or_else(|| self.tombstones.get(topic).copied());
        OfTenant::of(&self.replicas, topic).is_some() && last.is_none_or(|last| last < stamp)
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

    /// Makes a message the retained message of its topic, or removes that if the record is a tombstone.
    pub fn set(&mut self, mut record: RetainedRecord) {
        let message = Arc::clone(&record.message);
        let topic = message.publication().topic;
        if is_sys(topic) {
            self.own += usize::from(self.store.set(topic, record).is_none());
            return;
        }
        if record.is_tombstone() {
            self.remove(topic);
            if self.replicas.is_some()
                && self.can_bury(topic)
                && self.tombstones.insert(topic.into(), record.stamp).is_none()
            {
                self.tombstone_bytes += topic.len();
            }
            return;
        }
        if let Some(replicas) = OfTenant::of(&self.replicas, topic) {
            if self.tombstones.remove(topic).is_some() {
                self.tombstone_bytes -= topic.len();
            }
            record.stamp = replicated::stamp_or_of(record.stamp, message.publication().payload);
            let before = self.store.get(topic).map(|record| record.stamp);
            replicas.note(topic, before, Some(record.stamp));
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

    /// Removes the retained message of a topic. Leaves no tombstone.
    pub fn remove(&mut self, topic: &str) {
        if let Some(removed) = self.store.remove(topic) {
            self.note_removed(&removed);
        }
    }

    /// Returns the record of the retained message of a topic, or of its removal, for another broker.
    pub(crate) fn record(&self, topic: &str) -> Option<RetainedRecord> {
        let stamp = || self.tombstones.get(topic).copied();
        self.store.get(topic).cloned().or_else(|| stamp().map(|stamp| tombstone(topic, stamp)))
    }

    /// Visits at most [`STEPS`] messages that have replicas, of the topics after one.
    pub(crate) fn visit(&self, after: Option<&str>, mut each: impl FnMut(&str, Stamp)) -> Walked {
        self.store.visit(after, STEPS, |topic, record| {
            if OfTenant::has(topic) {
                each(topic, record.stamp);
            }
        })
    }

    /// Visits at most [`STEPS`] tombstones of the topics after one. Returns the last topic, if there are more.
    pub(crate) fn visit_tombstones(
        &self,
        after: Option<&str>,
        mut each: impl FnMut(&str, Stamp),
    ) -> Option<Box<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = self.tombstones.range::<str, _>((from, Bound::Unbounded));
        let mut last = None;
        for (topic, stamp) in left.by_ref().take(STEPS) {
            each(topic, *stamp);
            last = Some(topic);
        }
        last.filter(|_| left.next().is_some()).cloned()
    }

    /// Returns the time of the oldest tombstones that are to be kept.
    pub(crate) fn tombstones_kept_from(&self) -> u64 {
        let is_large = self.tombstone_bytes > TOMBSTONE_BYTES_MAX / 2;
        replicated::kept_from(self.tombstones.values().copied(), is_large)
    }

    /// Whether there are tombstones.
    pub(crate) fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// Forgets a tombstone. Returns whether there was one with this stamp.
    pub(crate) fn forget_tombstone(&mut self, topic: &str, stamp: Stamp) -> bool {
        let is_there = self.tombstones.get(topic) == Some(&stamp);
        if is_there {
            self.tombstones.remove(topic);
            self.tombstone_bytes -= topic.len();
        }
        is_there
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
        removed.iter().for_each(|record| self.note_removed(record));
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

    fn note_removed(&mut self, removed: &RetainedRecord) {
        let topic = removed.message.publication().topic;
        if let Some(replicas) = OfTenant::of(&self.replicas, topic) {
            replicas.note(topic, Some(removed.stamp), None);
        }
        self.forget(removed);
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

/// Returns the record that says that the retained message of a topic was removed.
pub(crate) fn tombstone(topic: &str, stamp: Stamp) -> RetainedRecord {
    let message = Message::new(&Publication {
        topic,
        payload: &[],
        properties: &[],
        qos: QoS::AtMostOnce,
        retain: true,
        expires_at: None,
    });
    RetainedRecord { message: Arc::new(message), holder: None, stamp }
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

    use super::*;
    use crate::clock;
    use crate::replicated::Replicated;

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
        RetainedRecord { message: message(topic, payload), holder: None, stamp: Stamp::NONE }
    }

    #[test]
    fn what_is_counted_is_what_is_there() {
        let mut retained = Retained::new(1, None);
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
        let mut retained = Retained::new(1, None);
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
        let mut retained = Retained::new(1, None);
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

    #[test]
    fn tombstones_are_bounded_in_number_and_bytes() {
        let replicated = Replicated::new(clock::tests::stopped(), 1, Some(Box::new(|_| ())));
        let of = || OfTenant { replicated: Arc::clone(&replicated), tenant: "t".into() };
        let mut retained = Retained::new(1, Some(of()));
        let bury = |retained: &mut Retained, topic: &str| {
            let stamp = retained.new_stamp(topic);
            let had_room = retained.can_bury(topic);
            retained.set(tombstone(topic, stamp));
            (had_room, stamp)
        };
        for number in 0..TOMBSTONES_MAX {
            assert!(bury(&mut retained, &number.to_string()).0);
        }
        assert!(!bury(&mut retained, "one more").0);
        let (is_replaced, stamp) = bury(&mut retained, "7");
        assert!(is_replaced);
        assert_eq!(retained.tombstones.len(), TOMBSTONES_MAX);
        assert!(retained.tombstones_kept_from() > 0, "a sweep forgets the older half");
        assert!(!retained.forget_tombstone("7", Stamp { time: 0, origin: 0 }));
        assert!(retained.forget_tombstone("7", stamp));
        assert!(bury(&mut retained, "one more").0);
        let mut retained = Retained::new(1, Some(of()));
        let topic = |number: usize| format!("{number}/{}", "x".repeat(60_000));
        let most = TOMBSTONE_BYTES_MAX / topic(100).len();
        let kept = (100..100 + 2 * most).filter(|number| bury(&mut retained, &topic(*number)).0);
        assert_eq!(kept.count(), most);
        retained.set(plain(&topic(100), 1));
        assert!(bury(&mut retained, &topic(999)).0, "a message in place of a tombstone makes room");
        assert!(retained.tombstone_bytes <= TOMBSTONE_BYTES_MAX);
    }
}
