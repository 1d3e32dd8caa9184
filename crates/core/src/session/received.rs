//! Packet identifiers of QoS 2 messages received and not yet released.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use smallvec::SmallVec;

use crate::ids::ShardIndex;

/// The receiver's half of QoS 2 (method B of MQTT 5 §4.3.3): a message is handed on when its PUBLISH arrives, and its
/// identifier is kept until PUBREL so that a repeated PUBLISH is not handed on again.
#[derive(Debug, Default)]
pub struct ReceivedIds {
    ids: HashMap<u16, Received, foldhash::fast::FixedState>,
}

#[derive(Clone, Debug, Default)]
struct Received {
    /// The shards in which the message is noted.
    shards: ShardSet,
    /// The other brokers of the cluster to which the message was sent, as the bits of their places.
    others: u64,
    stage: Stage,
}

/// The progress of handling a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The message is being handed on.
    #[default]
    Unfinished,
    /// The message was found in a store when that was opened, or its recipients are in doubt. It is unknown whether all of
    /// them have it, so the client's repetition is handed on once more; the shards know which recipients have it.
    Recovered,
    /// A shard was closed while the message was handed on, or later: recipients that store the message may not have it.
    /// All others do, except those that were not known because the broker was losing the quorum of its cluster.
    Lost,
    /// All recipients have the message, as far as is known here.
    HandedOn,
}

/// A set of shards of a data directory; mostly one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSet(SmallVec<[ShardIndex; 2]>);

impl ShardSet {
    /// Adds a shard.
    pub fn insert(&mut self, shard: ShardIndex) {
        if let Err(at) = self.0.binary_search(&shard) {
            self.0.insert(at, shard);
        }
    }

    /// The shards, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ShardIndex> {
        self.0.iter().copied()
    }
}

/// The meaning of a received PUBLISH of QoS 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// A new message.
    New,
    /// A repetition of a message that may have been handed on to some recipients before a crash.
    Resumed,
    /// A repetition of a message that recipients which store it may not have, because a shard was closed; all others
    /// have it.
    Lost,
    /// A repetition of a message that is still being handed on: too early to be acknowledged.
    Unfinished,
    /// A repetition of a message that was handed on; to be acknowledged only.
    Repeated,
}

impl ReceivedIds {
    /// Notes a PUBLISH.
    pub fn receive(&mut self, id: u16) -> Reception {
        match self.ids.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(Received::default());
                Reception::New
            }
            Entry::Occupied(mut held) => {
                let stage = &mut held.get_mut().stage;
                match std::mem::take(stage) {
                    Stage::Unfinished => Reception::Unfinished,
                    Stage::Recovered => Reception::Resumed,
                    Stage::Lost => Reception::Lost,
                    Stage::HandedOn => {
                        *stage = Stage::HandedOn;
                        Reception::Repeated
                    }
                }
            }
        }
    }

    /// Notes that a message has been handed on, the shards in which it is noted, and the other brokers to which it was sent, as
    /// the bits of their places. `is_lost` says that one of its shards was closed, so that the note there is lost, or that
    /// some subscribers may not be known yet.
    pub fn hand_on(
        &mut self,
        id: u16,
        shards: impl IntoIterator<Item = ShardIndex>,
        others: u64,
        is_lost: bool,
    ) {
        if let Some(received) = self.ids.get_mut(&id) {
            shards.into_iter().for_each(|shard| received.shards.insert(shard));
            received.others |= others;
            received.stage = if is_lost { Stage::Lost } else { Stage::HandedOn };
        }
    }

    /// Adjusts the set when the shard of the session is opened again in the same process. Recipients that store a
    /// message handed on before the shard was closed may not have it; all others do.
    #[must_use]
    pub fn reopened(mut self) -> Self {
        for received in self.ids.values_mut() {
            if received.stage != Stage::Recovered {
                received.stage = Stage::Lost;
            }
        }
        self
    }

    /// Returns the other brokers to which a message was sent, as the bits of their places.
    pub fn others(&self, id: u16) -> u64 {
        self.ids.get(&id).map_or(0, |received| received.others)
    }

    /// Lets all messages be handed on once more when they are repeated: it is unknown whether other brokers have them.
    pub fn doubt(&mut self) {
        for received in self.ids.values_mut() {
            received.others = 0;
            if received.stage == Stage::HandedOn {
                received.stage = Stage::Recovered;
            }
        }
    }

    /// Adds an identifier that was found in the store of a shard. The stage of an identifier that is already known does
    /// not change.
    pub fn recover(&mut self, id: u16, shard: ShardIndex) {
        let found = || Received { stage: Stage::Recovered, ..Received::default() };
        self.ids.entry(id).or_insert_with(found).shards.insert(shard);
    }

    /// Adds an identifier of a session in a slot that was to be moved, or was: all recipients at all brokers have the message.
    pub fn adopt(&mut self, id: u16, shard: ShardIndex) {
        let adopted = self.ids.entry(id).or_default();
        adopted.shards.insert(shard);
        adopted.stage = Stage::HandedOn;
    }

    /// The identifiers of messages that all recipients have, at all brokers that have acknowledged what was sent to them.
    pub fn handed_on(&self) -> impl Iterator<Item = u16> {
        let is_handed_on =
            |(id, received): (&u16, &Received)| (received.stage == Stage::HandedOn).then_some(*id);
        self.ids.iter().filter_map(is_handed_on)
    }

    /// Returns whether a message with this identifier is being handed on.
    pub fn is_unfinished(&self, id: u16) -> bool {
        self.ids.get(&id).is_some_and(|received| received.stage == Stage::Unfinished)
    }

    /// Notes a PUBREL. Returns the shards in which the message is noted, or `None` if no such message is held.
    pub fn release(&mut self, id: u16) -> Option<ShardSet> {
        self.ids.remove(&id).map(|received| received.shards)
    }

    /// Returns whether a message with this identifier is held.
    pub fn contains(&self, id: u16) -> bool {
        self.ids.contains_key(&id)
    }

    /// The identifiers held, and the shards in which they are noted.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &ShardSet)> {
        self.ids.iter().map(|(id, received)| (*id, &received.shards))
    }

    /// Number of messages held; counts against the broker's Receive Maximum.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no message is held.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_publish_is_not_new_until_released() {
        let mut received = ReceivedIds::default();
        assert_eq!(received.receive(1), Reception::New);
        assert_eq!(received.receive(1), Reception::Unfinished);
        received.hand_on(1, [], 0, false);
        assert_eq!(received.receive(1), Reception::Repeated);
        assert!(received.release(1).is_some());
        assert!(received.release(1).is_none());
        assert_eq!(received.receive(1), Reception::New);
        assert_eq!(received.len(), 1);
    }

    #[test]
    fn what_all_have_is_known_after_a_move() {
        let mut received = ReceivedIds::default();
        received.receive(1);
        received.receive(2);
        received.recover(3, 0);
        received.hand_on(2, [], 1, false);
        assert!(received.handed_on().eq([2]));
        let mut adopted = ReceivedIds::default();
        adopted.adopt(2, 5);
        assert_eq!(adopted.receive(2), Reception::Repeated);
        assert!(adopted.release(2).is_some_and(|shards| shards.iter().eq([5])));
        received.doubt();
        assert_eq!(received.handed_on().count(), 0);
    }

    #[test]
    fn what_a_shard_has_lost_is_handed_on_once_more() {
        let mut received = ReceivedIds::default();
        received.receive(1);
        received.hand_on(1, [3], 0, true);
        received.recover(1, 4);
        assert_eq!(received.receive(1), Reception::Lost);
        assert_eq!(received.receive(1), Reception::Unfinished);
        received.hand_on(1, [3], 0, false);
        received.recover(1, 5);
        assert_eq!(received.receive(1), Reception::Repeated, "an open shard adds nothing to it");
        assert!(received.release(1).is_some_and(|shards| shards.iter().eq([3, 4, 5])));
    }

    #[test]
    fn what_was_handed_on_before_a_shard_was_closed_is_known() {
        let mut received = ReceivedIds::default();
        received.receive(1);
        received.hand_on(1, [3], 0, false);
        received.recover(2, 3);
        let mut received = received.reopened();
        received.recover(1, 3);
        assert_eq!(received.receive(1), Reception::Lost);
        assert_eq!(
            received.receive(2),
            Reception::Resumed,
            "that was handed on by another process"
        );
    }

    #[test]
    fn what_is_in_doubt_is_handed_on_once_more() {
        let mut received = ReceivedIds::default();
        received.receive(1);
        received.hand_on(1, [3], 0b101, false);
        received.receive(2);
        assert_eq!((received.others(1), received.others(2)), (0b101, 0));
        received.doubt();
        assert_eq!((received.others(1), received.receive(1)), (0, Reception::Resumed));
        assert_eq!(received.receive(2), Reception::Unfinished);
    }

    #[test]
    fn what_a_crash_interrupted_is_handed_on_once_more() {
        let mut received = ReceivedIds::default();
        received.recover(7, 63);
        received.recover(7, 0);
        received.recover(7, 63);
        assert!(!received.is_unfinished(7));
        assert_eq!(received.receive(7), Reception::Resumed);
        assert!(received.is_unfinished(7));
        received.hand_on(7, [400, 2, 0], 0, false);
        assert_eq!(received.receive(7), Reception::Repeated);
        assert!(received.release(7).is_some_and(|shards| shards.iter().eq([0, 2, 63, 400])));
    }
}
