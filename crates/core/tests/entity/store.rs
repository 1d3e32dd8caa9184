//! Effects for the tests: a store that is a map, and a list of the notifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::entity::{Effects, Entity, Entry, Part, Properties, ReceiverId, SequenceNumber};
use barid_core::time::WallTime;

/// All stored records of one entity.
#[derive(Clone, Default)]
pub struct Store {
    pub bodies: BTreeMap<u64, Arc<[u8]>>,
    pub entries: BTreeMap<(Part, SequenceNumber), Entry>,
    pub states: BTreeMap<Arc<str>, (Arc<[u8]>, WallTime)>,
    pub seen: BTreeMap<Arc<str>, WallTime>,
    pub numbers: BTreeMap<Part, SequenceNumber>,
}

/// A notification of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Ready(ReceiverId),
    Granted(ReceiverId, String, WallTime),
    TimedOut(ReceiverId),
    LockLost(ReceiverId),
}

/// Effects that keep the stored records and the notifications.
pub struct Heard {
    pub store: Store,
    pub told: Vec<Told>,
    pub keeps_in_memory: bool,
    pub memory: usize,
}

impl Default for Heard {
    fn default() -> Self {
        Self { store: Store::default(), told: Vec::new(), keeps_in_memory: true, memory: 0 }
    }
}

impl Heard {
    /// Recovers an entity from the stored records, and starts it.
    pub fn recover(&mut self, properties: Properties, last_lock: u64) -> Entity {
        let mut entity = Entity::new(properties, last_lock);
        for ((part, _), entry) in &self.store.entries {
            let mut entry = entry.clone();
            entry.body.bytes = None;
            // After recovery each entry has its own copy of the id, as it comes from a record.
            entry.session = entry.session.map(|id| Arc::from(&*id));
            entity.recover_entry(*part, entry);
        }
        for (session, (bytes, updated_at)) in &self.store.states {
            entity.recover_state(session, Arc::clone(bytes), *updated_at);
        }
        for (id, until) in &self.store.seen {
            entity.recover_seen(id, *until);
        }
        for (part, reserved) in &self.store.numbers {
            entity.recover_numbers(*part, *reserved);
        }
        self.memory = entity.bytes_in_memory();
        entity.start(self);
        entity
    }

    /// The bytes of a message, in memory or not.
    pub fn bytes_of(&self, entry: &Entry) -> Arc<[u8]> {
        entry.body.bytes.clone().unwrap_or_else(|| Arc::clone(&self.store.bodies[&entry.body.id]))
    }
}

impl Effects for Heard {
    fn put_body(&mut self, id: u64, bytes: &Arc<[u8]>) {
        let before = self.store.bodies.insert(id, Arc::clone(bytes));
        assert_eq!(before, None, "a body is put once");
    }

    fn remove_body(&mut self, id: u64) {
        self.store.bodies.remove(&id).expect("a body is removed once");
    }

    fn put_entry(&mut self, part: Part, entry: &Entry) {
        assert!(self.store.bodies.contains_key(&entry.body.id), "a message has a body");
        let mut entry = entry.clone();
        entry.body.bytes = None;
        self.store.entries.insert((part, entry.number), entry);
    }

    fn remove_entry(&mut self, part: Part, number: SequenceNumber) {
        self.store.entries.remove(&(part, number)).expect("an entry is removed once");
    }

    fn put_state(&mut self, session: &Arc<str>, state: &Arc<[u8]>, updated_at: WallTime) {
        self.store.states.insert(Arc::clone(session), (Arc::clone(state), updated_at));
    }

    fn remove_state(&mut self, session: &Arc<str>) {
        self.store.states.remove(session);
    }

    fn put_seen(&mut self, message_id: &Arc<str>, until: WallTime) {
        self.store.seen.insert(Arc::clone(message_id), until);
    }

    fn remove_seen(&mut self, message_id: &Arc<str>) {
        self.store.seen.remove(message_id);
    }

    fn put_numbers(&mut self, part: Part, reserved: SequenceNumber) {
        self.store.numbers.insert(part, reserved);
    }

    fn keeps_in_memory(&self) -> bool {
        self.keeps_in_memory
    }

    fn memory(&mut self, before: usize, after: usize) {
        self.memory = self.memory + after - before;
    }

    fn ready(&mut self, receiver: ReceiverId) {
        self.told.push(Told::Ready(receiver));
    }

    fn granted(&mut self, receiver: ReceiverId, session: &Arc<str>, locked_until: WallTime) {
        self.told.push(Told::Granted(receiver, session.to_string(), locked_until));
    }

    fn timed_out(&mut self, receiver: ReceiverId) {
        self.told.push(Told::TimedOut(receiver));
    }

    fn lock_lost(&mut self, receiver: ReceiverId) {
        self.told.push(Told::LockLost(receiver));
    }
}
