//! Packet identifiers of QoS 2 messages received and not yet released.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use smallvec::SmallVec;

use crate::ids::ShardIndex;

/// The receiver's half of QoS 2 (method B of MQTT 5 §4.3.3): a message is handed on when its PUBLISH
/// arrives, and its identifier is remembered until PUBREL so that a repeated PUBLISH is not.
#[derive(Debug, Default)]
pub struct ReceivedIds {
    ids: HashMap<u16, Received, foldhash::fast::FixedState>,
}

#[derive(Clone, Debug, Default)]
struct Received {
    /// The shards where it is noted.
    shards: ShardSet,
    /// Found in the store at the start. Whether everybody has the message who is to have it is not known, so the
    /// client's repetition is handed on once more; the shards know who has it.
    recovered: bool,
    /// Everybody has the message who is to have it, as far as is known here.
    handed_on: bool,
}

/// Some of the shards of a data directory; mostly one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSet(SmallVec<[ShardIndex; 2]>);

impl ShardSet {
    /// Adds one.
    pub fn insert(&mut self, shard: ShardIndex) {
        if let Err(at) = self.0.binary_search(&shard) {
            self.0.insert(at, shard);
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ShardIndex> {
        self.0.iter().copied()
    }
}

/// What a PUBLISH of QoS 2 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// A new message.
    New,
    /// Perhaps half handed on before a crash.
    Resumed,
    /// A repetition of one that has not been handed on yet: too early to be acknowledged.
    Unfinished,
    /// A repetition, not to be handed on.
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
            Entry::Occupied(mut held) if held.get().recovered => {
                held.get_mut().recovered = false;
                Reception::Resumed
            }
            Entry::Occupied(held) if !held.get().handed_on => Reception::Unfinished,
            Entry::Occupied(_) => Reception::Repeated,
        }
    }

    /// Notes that a message has been handed on, and in which shards that is noted.
    pub fn hand_on(&mut self, id: u16, shards: impl IntoIterator<Item = ShardIndex>) {
        if let Some(received) = self.ids.get_mut(&id) {
            shards.into_iter().for_each(|shard| received.shards.insert(shard));
            received.handed_on = true;
        }
    }

    /// Notes an identifier that was found in the store of a shard.
    pub fn recover(&mut self, id: u16, shard: ShardIndex) {
        let received = self.ids.entry(id).or_default();
        received.recovered = true;
        received.shards.insert(shard);
    }

    /// Whether a message with this identifier is being handed on.
    pub fn is_unfinished(&self, id: u16) -> bool {
        self.ids.get(&id).is_some_and(|received| !received.recovered && !received.handed_on)
    }

    /// Notes a PUBREL. Answers the shards where the message is noted; `None`: no such message was held.
    pub fn release(&mut self, id: u16) -> Option<ShardSet> {
        self.ids.remove(&id).map(|received| received.shards)
    }

    /// Whether a message with this identifier is held.
    pub fn contains(&self, id: u16) -> bool {
        self.ids.contains_key(&id)
    }

    /// The identifiers held, and the shards where they are noted.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &ShardSet)> {
        self.ids.iter().map(|(id, received)| (*id, &received.shards))
    }

    /// How many messages are held; counts against the broker's Receive Maximum.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none is held.
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
        received.hand_on(1, []);
        assert_eq!(received.receive(1), Reception::Repeated);
        assert!(received.release(1).is_some());
        assert!(received.release(1).is_none());
        assert_eq!(received.receive(1), Reception::New);
        assert_eq!(received.len(), 1);
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
        received.hand_on(7, [400, 2, 0]);
        assert_eq!(received.receive(7), Reception::Repeated);
        assert!(received.release(7).is_some_and(|shards| shards.iter().eq([0, 2, 63, 400])));
    }
}
