//! The messages of a part, by sequence number.

use std::collections::BTreeMap;

use super::numbers::Numbers;
use super::{Effects, Entry, Part, SequenceNumber, State};
use crate::time::WallTime;

/// All messages of one part, in whatever state, and counts of each kind.
#[derive(Debug)]
pub(super) struct Messages {
    part: Part,
    numbers: Numbers,
    entries: BTreeMap<SequenceNumber, Box<Entry>>,
    deferred: usize,
    scheduled: usize,
    /// Number of active messages that are locked by a receiver.
    locked: usize,
    bytes: usize,
    footprint: usize,
    in_memory: usize,
}

impl Messages {
    pub fn new(part: Part) -> Self {
        Self {
            part,
            numbers: Numbers::default(),
            entries: BTreeMap::new(),
            deferred: 0,
            scheduled: 0,
            locked: 0,
            bytes: 0,
            footprint: 0,
            in_memory: 0,
        }
    }

    /// Assigns the number of a new message.
    pub fn new_number(&mut self, fx: &mut dyn Effects) -> SequenceNumber {
        self.reserve_numbers(fx);
        self.numbers.take()
    }

    /// Ensures that enough numbers are reserved.
    pub fn reserve_numbers(&mut self, fx: &mut dyn Effects) {
        if let Some(reserved) = self.numbers.reserve() {
            fx.put_numbers(self.part, reserved);
        }
    }

    /// Gives the reservation up, and stores the next number.
    pub fn release_numbers(&mut self, fx: &mut dyn Effects) {
        fx.put_numbers(self.part, self.numbers.release());
    }

    /// Ensures that no number below `reserved` is assigned.
    pub fn recover_numbers(&mut self, reserved: SequenceNumber) {
        self.numbers.recover(reserved);
    }

    pub fn get(&self, number: SequenceNumber) -> Option<&Entry> {
        self.entries.get(&number).map(|entry| &**entry)
    }

    /// The messages with this number or a greater one, in order.
    pub fn from(&self, number: SequenceNumber) -> impl Iterator<Item = &Entry> {
        self.entries.range(number..).map(|(_, entry)| &**entry)
    }

    /// Adds a message under its number.
    pub fn put(&mut self, entry: Entry, fx: &mut dyn Effects) {
        fx.put_entry(self.part, &entry);
        self.restore(entry);
    }

    /// Adds a message that was read from the store.
    pub fn restore(&mut self, entry: Entry) {
        self.bytes += entry.body.size as usize;
        self.footprint += entry.footprint();
        self.in_memory += entry.body.in_memory();
        self.count(entry.state, true);
        let before = self.entries.insert(entry.number, Box::new(entry));
        debug_assert!(before.is_none(), "a number is given once");
    }

    /// Changes the entry of a message.
    pub fn change(
        &mut self,
        number: SequenceNumber,
        fx: &mut dyn Effects,
        change: impl FnOnce(&mut Entry),
    ) {
        let entry = self.entries.get_mut(&number).expect("it is here, as is every locked message");
        let before = entry.state;
        self.footprint -= entry.footprint();
        change(entry);
        self.footprint += entry.footprint();
        let after = entry.state;
        fx.put_entry(self.part, entry);
        self.count(before, false);
        self.count(after, true);
    }

    /// Takes a message out of the part; its body stays in the store.
    pub fn take(&mut self, number: SequenceNumber, fx: &mut dyn Effects) -> Entry {
        let entry =
            *self.entries.remove(&number).expect("it is here, as is all that is known by it");
        self.bytes -= entry.body.size as usize;
        self.footprint -= entry.footprint();
        self.in_memory -= entry.body.in_memory();
        self.count(entry.state, false);
        fx.remove_entry(self.part, number);
        entry
    }

    /// Counts an active message that was locked by a receiver, or unlocked in whatever way.
    pub fn count_locked(&mut self, locked: bool) {
        step(&mut self.locked, locked);
    }

    /// Resets the count when all messages are removed.
    pub fn count_none_locked(&mut self) {
        self.locked = 0;
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn active(&self) -> usize {
        self.len() - self.deferred - self.scheduled - self.locked
    }

    pub fn locked(&self) -> usize {
        self.locked
    }

    pub fn deferred(&self) -> usize {
        self.deferred
    }

    pub fn scheduled(&self) -> usize {
        self.scheduled
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that count against the limit of the entity.
    pub fn footprint(&self) -> usize {
        self.footprint
    }

    pub fn in_memory(&self) -> usize {
        self.in_memory
    }

    /// Time at which the first message was enqueued.
    pub fn oldest(&self) -> Option<WallTime> {
        self.entries.first_key_value().map(|(_, entry)| entry.enqueued_at)
    }

    fn count(&mut self, state: State, more: bool) {
        match state {
            State::Active => {}
            State::Deferred => step(&mut self.deferred, more),
            State::Scheduled { .. } => step(&mut self.scheduled, more),
        }
    }
}

fn step(count: &mut usize, more: bool) {
    *count = if more { *count + 1 } else { *count - 1 };
}
