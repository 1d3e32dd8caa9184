//! Consequences of a command on an entity: notes for its shard, and notifications of its receivers.

use std::sync::Arc;

use barid_core::durable::SessionStateRecord;
use barid_core::entity::{Effects, Entry, Part, ReceiverId, SequenceNumber};
use barid_core::time::WallTime;
use smallvec::SmallVec;

use super::queue::{Queue, Standing};
use super::receivers::Told;
use crate::durable::{ChangeGuard, Commits};
use crate::faults::{Rule, holds, interleave};

/// Receives the consequences of a command while the entity is locked. Locks the write set of the entity's shard at
/// the first note.
pub struct QueueEffects<'a> {
    queue: &'a Queue,
    guard: Option<ChangeGuard<'a>>,
    told: News,
    /// Whether the entity is open. Otherwise nothing of it is stored any more.
    standing: Standing,
}

/// Notifications of receivers, sent when the entity is unlocked.
pub(super) type News = SmallVec<[(ReceiverId, Told); 2]>;

impl<'a> QueueEffects<'a> {
    pub(super) fn new(queue: &'a Queue, standing: Standing) -> Self {
        Self { queue, guard: None, told: News::new(), standing }
    }

    /// Whether the entity has been deleted or its shard closed, so that a command has no lasting effect.
    pub fn is_void(&self) -> bool {
        self.standing != Standing::Open
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the write set of the entity's shard, which it locks unless it is locked already.
    pub(super) fn shard(&mut self) -> &mut ChangeGuard<'a> {
        self.guard.get_or_insert_with(|| self.queue.shard().change())
    }

    /// Returns the queue and its write set, unless the entity is void.
    fn open(&mut self) -> Option<(&'a Queue, &mut ChangeGuard<'a>)> {
        if self.is_void() {
            return None;
        }
        let queue = self.queue;
        if !holds(Rule::OneBatchForEachCommand) {
            self.guard = None;
            interleave();
        }
        Some((queue, self.shard()))
    }

    /// Unlocks the shard and returns the notifications. Adds to `commits` the batch with what was noted and, if the
    /// shard was closed, [`Queue::lost`].
    pub(super) fn finish(self, commits: &mut Commits) -> News {
        if let Some(guard) = &self.guard {
            commits.add(guard.index(), guard.batch());
        }
        if self.standing == Standing::Closed {
            commits.join(&self.queue.lost());
        }
        self.told
    }
}

impl Effects for QueueEffects<'_> {
    fn put_body(&mut self, id: u64, bytes: &Arc<[u8]>) {
        if let Some((queue, shard)) = self.open() {
            shard.put_queue_body(queue.tenant(), queue.number(), id, Arc::clone(bytes));
        }
    }

    fn remove_body(&mut self, id: u64) {
        if let Some((queue, shard)) = self.open() {
            shard.remove_queue_body(queue.tenant(), queue.number(), id);
        }
    }

    fn put_entry(&mut self, part: Part, entry: &Entry) {
        if let Some((queue, shard)) = self.open() {
            shard.put_queue_entry(queue.tenant(), queue.number(), part, entry);
        }
    }

    fn remove_entry(&mut self, part: Part, number: SequenceNumber) {
        if let Some((queue, shard)) = self.open() {
            shard.remove_queue_entry(queue.tenant(), queue.number(), part, number);
        }
    }

    fn put_state(&mut self, session: &Arc<str>, state: &Arc<[u8]>, updated_at: WallTime) {
        if let Some((queue, shard)) = self.open() {
            let record = SessionStateRecord { state: Arc::clone(state), updated_at };
            shard.put_queue_state(queue.tenant(), queue.number(), session, record);
        }
    }

    fn remove_state(&mut self, session: &Arc<str>) {
        if let Some((queue, shard)) = self.open() {
            shard.remove_queue_state(queue.tenant(), queue.number(), session);
        }
    }

    fn put_seen(&mut self, message_id: &Arc<str>, until: WallTime) {
        if let Some((queue, shard)) = self.open() {
            shard.put_queue_seen(queue.tenant(), queue.number(), message_id, until);
        }
    }

    fn remove_seen(&mut self, message_id: &Arc<str>) {
        if let Some((queue, shard)) = self.open() {
            shard.remove_queue_seen(queue.tenant(), queue.number(), message_id);
        }
    }

    fn put_numbers(&mut self, part: Part, reserved: SequenceNumber) {
        if let Some((queue, shard)) = self.open() {
            shard.put_queue_numbers(queue.tenant(), queue.number(), part, reserved);
        }
    }

    fn keeps_in_memory(&self) -> bool {
        // The bytes of a void entity are not stored, so they can be in memory only.
        self.is_void() || self.queue.shards().has_memory()
    }

    fn memory(&mut self, before: usize, after: usize) {
        if !self.is_void() {
            self.queue.shards().count_in_memory(before, after);
        }
    }

    fn ready(&mut self, receiver: ReceiverId) {
        if holds(Rule::TellWhatIsReady) {
            self.told.push((receiver, Told::Ready));
        }
    }

    fn granted(&mut self, receiver: ReceiverId, session: &Arc<str>, locked_until: WallTime) {
        let session = Arc::clone(session);
        self.told.push((receiver, Told::Granted { session, locked_until }));
    }

    fn timed_out(&mut self, receiver: ReceiverId) {
        self.told.push((receiver, Told::TimedOut));
    }

    fn lock_lost(&mut self, receiver: ReceiverId) {
        self.told.push((receiver, Told::LockLost));
    }
}
