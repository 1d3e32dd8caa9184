//! Changes of entities and their queues, as [`Effects`](crate::entity::Effects) passes them.

use std::sync::Arc;

use super::changes::Change;
use super::{EntityRecord, SessionStateRecord, Shard};
use crate::entity::{Body, Entry, Part, SequenceNumber};
use crate::ids::{QueueNumber, TenantNumber};
use crate::time::WallTime;

impl Shard {
    /// Assigns a number that no queue has or had, nor any record that a queue may have left behind. Queues and sessions
    /// share one counter.
    pub fn new_queue_number(&mut self) -> QueueNumber {
        self.new_session_number()
    }

    /// Puts the record of an entity, in place of its earlier one.
    pub fn put_entity(&mut self, tenant: TenantNumber, path: &str, record: EntityRecord) {
        self.changes.entities.note((tenant, path.into()), Change::Put(record));
    }

    /// Removes the record of an entity and its reserved sequence numbers, but not the contents of its queue. Contents
    /// that are still there are removed at the next start.
    pub fn remove_entity(&mut self, tenant: TenantNumber, path: &str, queue: QueueNumber) {
        self.changes.entities.note((tenant, path.into()), Change::Remove);
        for part in Part::ALL {
            self.remove_queue_numbers(tenant, queue, part);
        }
    }

    /// Puts an entry, in place of the one with the same number. The bytes of its body are put separately.
    pub fn put_queue_entry(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
        entry: &Entry,
    ) {
        let newest = self.newest.entry((queue, part)).or_default();
        let change = match entry.number > *newest {
            true => Change::New(without_bytes(entry)),
            false => Change::Put(without_bytes(entry)),
        };
        *newest = entry.number.max(*newest);
        self.changes.queue_entries.note((tenant, queue, part, entry.number), change);
    }

    /// Removes an entry, but not its body.
    pub fn remove_queue_entry(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
        number: SequenceNumber,
    ) {
        self.changes.queue_entries.note((tenant, queue, part, number), Change::Remove);
    }

    /// Puts a body under an id that is new to the queue.
    pub fn put_queue_body(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        id: u64,
        bytes: Arc<[u8]>,
    ) {
        self.changes.queue_bodies.note((tenant, queue, id), Change::New(bytes));
    }

    /// Removes a body.
    pub fn remove_queue_body(&mut self, tenant: TenantNumber, queue: QueueNumber, id: u64) {
        self.changes.queue_bodies.note((tenant, queue, id), Change::Remove);
    }

    /// Puts the state of a message session, in place of its earlier one.
    pub fn put_queue_state(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        session: &Arc<str>,
        record: SessionStateRecord,
    ) {
        self.changes.queue_sessions.note((tenant, queue, Arc::clone(session)), Change::Put(record));
    }

    /// Removes the state of a message session.
    pub fn remove_queue_state(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        session: &Arc<str>,
    ) {
        self.changes.queue_sessions.note((tenant, queue, Arc::clone(session)), Change::Remove);
    }

    /// Notes the time until which a message with this id is a duplicate.
    pub fn put_queue_seen(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        message_id: &Arc<str>,
        until: WallTime,
    ) {
        self.changes.queue_seen.note((tenant, queue, Arc::clone(message_id)), Change::Put(until));
    }

    /// Forgets that a message with this id was sent.
    pub fn remove_queue_seen(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        message_id: &Arc<str>,
    ) {
        self.changes.queue_seen.note((tenant, queue, Arc::clone(message_id)), Change::Remove);
    }

    /// Notes that sequence numbers below `reserved` may have been assigned.
    pub fn put_queue_numbers(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
        reserved: SequenceNumber,
    ) {
        self.changes.queue_numbers.note((tenant, queue, part), Change::Put(reserved));
    }

    /// Forgets all numbers of a part, after its entity was removed.
    pub(super) fn remove_queue_numbers(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
    ) {
        self.changes.queue_numbers.note((tenant, queue, part), Change::Remove);
        self.newest.remove(&(queue, part));
    }

    /// Notes that the store has an entry with this number.
    pub(super) fn recover_queue_entry(
        &mut self,
        queue: QueueNumber,
        part: Part,
        number: SequenceNumber,
    ) {
        let newest = self.newest.entry((queue, part)).or_default();
        *newest = number.max(*newest);
    }
}

/// Copies an entry without the bytes of its body, as it is stored.
fn without_bytes(entry: &Entry) -> Entry {
    Entry {
        number: entry.number,
        session: entry.session.clone(),
        message_id: entry.message_id.clone(),
        enqueued_number: entry.enqueued_number,
        enqueued_at: entry.enqueued_at,
        expires_at: entry.expires_at,
        delivery_count: entry.delivery_count,
        state: entry.state,
        body: Body { id: entry.body.id, size: entry.body.size, bytes: None },
        overlay: entry.overlay.clone(),
    }
}
