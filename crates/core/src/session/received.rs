//! Packet identifiers of QoS 2 messages received and not yet released.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// The receiver's half of QoS 2 (method B of MQTT 5 §4.3.3): a message is handed on when its PUBLISH
/// arrives, and its identifier is remembered until PUBREL so that a repeated PUBLISH is not.
#[derive(Debug, Default)]
pub struct ReceivedIds {
    ids: HashMap<u16, Received, foldhash::fast::FixedState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Received {
    /// The shards whose store has the identifier.
    shards: ShardSet,
    /// Found in the store at the start. Whether the message had reached all shards that it had to is not
    /// known, so the client's repetition is handed to those that do not have it.
    recovered: bool,
    /// Everybody has the message who is to have it, as far as is known here.
    handed_on: bool,
}

/// Some of the shards of a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardSet(u64);

impl ShardSet {
    /// The most shards that a data directory may have.
    pub const SHARDS_MAX: u16 = 64;

    /// Adds one.
    pub fn insert(&mut self, shard: u16) {
        debug_assert!(shard < Self::SHARDS_MAX);
        self.0 |= 1 << shard;
    }

    /// Whether it has one.
    pub fn contains(self, shard: u16) -> bool {
        self.0 >> shard & 1 == 1
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (0..Self::SHARDS_MAX).filter(move |shard| self.contains(*shard))
    }
}

/// What a PUBLISH of QoS 2 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// A new message.
    New,
    /// Perhaps half handed on before a crash: these shards have it, others must be given it.
    Resumed(ShardSet),
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
                Reception::Resumed(held.get().shards)
            }
            Entry::Occupied(held) if !held.get().handed_on => Reception::Unfinished,
            Entry::Occupied(_) => Reception::Repeated,
        }
    }

    /// Notes that a message has been handed on, and in which shards its identifier is stored.
    pub fn hand_on(&mut self, id: u16, shards: ShardSet) {
        if let Some(received) = self.ids.get_mut(&id) {
            received.shards.0 |= shards.0;
            received.handed_on = true;
        }
    }

    /// Notes an identifier that was found in the store of a shard.
    pub fn recover(&mut self, id: u16, shard: u16) {
        let received = self.ids.entry(id).or_default();
        received.recovered = true;
        received.shards.insert(shard);
    }

    /// Notes a PUBREL. Answers the shards that store the identifier; `None`: no such message was held.
    pub fn release(&mut self, id: u16) -> Option<ShardSet> {
        self.ids.remove(&id).map(|received| received.shards)
    }

    /// Whether a message with this identifier is held.
    pub fn contains(&self, id: u16) -> bool {
        self.ids.contains_key(&id)
    }

    /// The identifiers held, and the shards that store them.
    pub fn iter(&self) -> impl Iterator<Item = (u16, ShardSet)> {
        self.ids.iter().map(|(id, received)| (*id, received.shards))
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
        received.hand_on(1, ShardSet::default());
        assert_eq!(received.receive(1), Reception::Repeated);
        assert!(received.release(1).is_some());
        assert!(received.release(1).is_none());
        assert_eq!(received.receive(1), Reception::New);
        assert_eq!(received.len(), 1);
    }

    #[test]
    fn what_a_crash_interrupted_goes_only_to_shards_that_do_not_have_it() {
        let mut received = ReceivedIds::default();
        received.recover(7, 0);
        received.recover(7, 63);
        let Reception::Resumed(shards) = received.receive(7) else { panic!() };
        assert!(shards.iter().eq([0, 63]));
        let mut others = ShardSet::default();
        others.insert(2);
        received.hand_on(7, others);
        assert_eq!(received.receive(7), Reception::Repeated);
        assert!(received.release(7).is_some_and(|shards| shards.iter().eq([0, 2, 63])));
    }
}
