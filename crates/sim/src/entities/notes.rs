//! What follows from a command.

use std::sync::Arc;

use barid_core::durable::{SessionStateRecord, Shard};
use barid_core::entity::{Effects, Entry, Part, ReceiverId, SequenceNumber};
use barid_core::ids::QueueNumber;
use barid_core::time::WallTime;

use crate::durable::TENANT_NUMBER;

/// Notes what is to be written, and keeps what receivers have to be told.
pub struct Notes<'a> {
    pub shard: &'a mut Shard,
    pub queue: QueueNumber,
    /// Whether the bytes of messages stay in memory.
    pub keeps: bool,
    /// Where dead letters go that are noted too late, if a rule is broken.
    pub late: Option<&'a mut Vec<Late>>,
    pub events: Vec<Event>,
}

/// What a receiver has to be told.
pub enum Event {
    Ready(ReceiverId),
    Granted(ReceiverId, Arc<str>, WallTime),
    Closed(ReceiverId),
}

/// What should have been in a batch that is gone.
pub struct Late {
    /// The batch.
    pub batch: u64,
    pub queue: QueueNumber,
    pub entry: Entry,
}

impl Effects for Notes<'_> {
    fn put_body(&mut self, id: u64, bytes: &Arc<[u8]>) {
        self.shard.put_queue_body(TENANT_NUMBER, self.queue, id, Arc::clone(bytes));
    }

    fn remove_body(&mut self, id: u64) {
        self.shard.remove_queue_body(TENANT_NUMBER, self.queue, id);
    }

    fn put_entry(&mut self, part: Part, entry: &Entry) {
        if let (Part::DeadLetter, Some(late)) = (part, &mut self.late) {
            let batch = self.shard.batch();
            late.push(Late { batch, queue: self.queue, entry: entry.clone() });
            return;
        }
        self.shard.put_queue_entry(TENANT_NUMBER, self.queue, part, entry);
    }

    fn remove_entry(&mut self, part: Part, number: SequenceNumber) {
        self.shard.remove_queue_entry(TENANT_NUMBER, self.queue, part, number);
        if let (Part::DeadLetter, Some(late)) = (part, &mut self.late) {
            late.retain(|late| late.entry.number != number || late.queue != self.queue);
        }
    }

    fn put_state(&mut self, session: &Arc<str>, state: &Arc<[u8]>, updated_at: WallTime) {
        let record = SessionStateRecord { state: Arc::clone(state), updated_at };
        self.shard.put_queue_state(TENANT_NUMBER, self.queue, session, record);
    }

    fn remove_state(&mut self, session: &Arc<str>) {
        self.shard.remove_queue_state(TENANT_NUMBER, self.queue, session);
    }

    fn put_seen(&mut self, message_id: &Arc<str>, until: WallTime) {
        self.shard.put_queue_seen(TENANT_NUMBER, self.queue, message_id, until);
    }

    fn remove_seen(&mut self, message_id: &Arc<str>) {
        self.shard.remove_queue_seen(TENANT_NUMBER, self.queue, message_id);
    }

    fn put_numbers(&mut self, part: Part, reserved: SequenceNumber) {
        self.shard.put_queue_numbers(TENANT_NUMBER, self.queue, part, reserved);
    }

    fn keeps_in_memory(&self) -> bool {
        self.keeps
    }

    fn memory(&mut self, _: usize, _: usize) {}

    fn ready(&mut self, receiver: ReceiverId) {
        self.events.push(Event::Ready(receiver));
    }

    fn granted(&mut self, receiver: ReceiverId, session: &Arc<str>, locked_until: WallTime) {
        self.events.push(Event::Granted(receiver, Arc::clone(session), locked_until));
    }

    fn timed_out(&mut self, receiver: ReceiverId) {
        self.events.push(Event::Closed(receiver));
    }

    fn lock_lost(&mut self, receiver: ReceiverId) {
        self.events.push(Event::Closed(receiver));
    }
}
