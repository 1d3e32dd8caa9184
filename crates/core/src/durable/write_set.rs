//! The changes that one shard has to write.
//!
//! Changes are kept as values, not as bytes: most messages are acknowledged soon after they arrive, and a message that
//! is removed before it is written costs a few hash table operations and no encoding.

use std::sync::Arc;

use barid_store::Batch;
use statestore_proto::Version;

use super::changes::{Change, Changes, Key, Weigh};
use super::keys::{
    self, AnsweredKey, EntityKey, EntryKey, ManagedKey, ManagedKind, MessageKey, QueueBodyKey,
    QueueEntryKey, QueueNumbersKey, QueueSeenKey, QueueSessionKey, ReceivedKey, RetainedKey,
    SessionKey, ShardKey, StateClockKey, StateKey, SubscriptionKey,
};
use super::records::{
    encode_body, encode_message, encode_numbers, encode_queue_entry, encode_seen,
    encode_state_clock,
};
use super::shard::TenantNames;
use super::{
    EntityRecord, ManagedRecord, ReceivedRecord, RetainedRecord, SessionRecord, SessionStateRecord,
    ShardRecord, SubscriptionRecord,
};
use crate::entity::{Entry, Part, SequenceNumber};
use crate::ids::{EntryNumber, MessageId, PacketId, QueueNumber, SessionNumber, TenantNumber};
use crate::message::Message;
use crate::session::EntryRecord;
use crate::state_store::{AnsweredRecord, StateRecord};
use crate::time::WallTime;

/// The last change of each key since the last commit, to be written as one batch.
#[derive(Debug, Default)]
pub struct WriteSet {
    pub(super) sessions: Changes<(TenantNumber, Box<str>), Box<SessionRecord>>,
    pub(super) subscriptions: Changes<(TenantNumber, SessionNumber, Box<str>), SubscriptionRecord>,
    pub(super) entries: Changes<(TenantNumber, SessionNumber, EntryNumber), EntryRecord>,
    pub(super) messages: Changes<(TenantNumber, MessageId), Arc<Message>>,
    pub(super) received: Changes<(TenantNumber, SessionNumber, PacketId), ReceivedRecord>,
    pub(super) retained: Changes<(TenantNumber, Box<str>), RetainedRecord>,
    pub(super) state: Changes<(TenantNumber, Arc<[u8]>), StateRecord>,
    pub(super) state_clocks: Changes<TenantNumber, Version>,
    pub(super) state_answers: Changes<(TenantNumber, SessionNumber, PacketId), AnsweredRecord>,
    pub(super) entities: Changes<(TenantNumber, Box<str>), EntityRecord>,
    /// Entries without the bytes of their bodies.
    pub(super) queue_entries: Changes<(TenantNumber, QueueNumber, Part, SequenceNumber), Entry>,
    pub(super) queue_bodies: Changes<(TenantNumber, QueueNumber, u64), Arc<[u8]>>,
    pub(super) queue_sessions: Changes<(TenantNumber, QueueNumber, Arc<str>), SessionStateRecord>,
    pub(super) queue_seen: Changes<(TenantNumber, QueueNumber, Arc<str>), WallTime>,
    pub(super) queue_numbers: Changes<(TenantNumber, QueueNumber, Part), SequenceNumber>,
    pub(super) managed: Changes<ManagedName, ManagedRecord>,
    pub(super) shard: Option<ShardRecord>,
}

/// The kind, the tenant and the name of a managed object, as in its key.
pub(super) type ManagedName = (ManagedKind, Box<str>, Box<str>);

/// Approximate overhead of a change in a batch, in bytes: its key without the text, and the framing.
const KEY_BYTES: usize = 40;

impl WriteSet {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that change.
    pub fn len(&self) -> usize {
        self.sessions.len()
            + self.subscriptions.len()
            + self.entries.len()
            + self.messages.len()
            + self.received.len()
            + self.retained.len()
            + self.state.len()
            + self.state_clocks.len()
            + self.state_answers.len()
            + self.entities.len()
            + self.queue_entries.len()
            + self.queue_bodies.len()
            + self.queue_sessions.len()
            + self.queue_seen.len()
            + self.queue_numbers.len()
            + self.managed.len()
            + usize::from(self.shard.is_some())
    }

    /// Whether the set puts anything: a set of removals alone needs no space on a full disk.
    pub fn has_puts(&self) -> bool {
        self.sessions.puts()
            + self.subscriptions.puts()
            + self.entries.puts()
            + self.messages.puts()
            + self.received.puts()
            + self.retained.puts()
            + self.state.puts()
            + self.state_clocks.puts()
            + self.state_answers.puts()
            + self.entities.puts()
            + self.queue_entries.puts()
            + self.queue_bodies.puts()
            + self.queue_sessions.puts()
            + self.queue_seen.puts()
            + self.queue_numbers.puts()
            + self.managed.puts()
            + usize::from(self.shard.is_some())
            > 0
    }

    /// Number of changes of messages for sessions that were superseded by later ones, and are not written.
    pub fn spared_of_sessions(&self) -> usize {
        self.entries.spared() + self.messages.spared()
    }

    /// Number of changes of messages in queues that were superseded by later ones, and are not written.
    pub fn spared_of_queues(&self) -> usize {
        self.queue_entries.spared() + self.queue_bodies.spared()
    }

    /// Approximate size of the set as a batch, in bytes.
    pub fn bytes(&self) -> usize {
        KEY_BYTES * self.len()
            + self.sessions.bytes()
            + self.subscriptions.bytes()
            + self.entries.bytes()
            + self.messages.bytes()
            + self.received.bytes()
            + self.retained.bytes()
            + self.state.bytes()
            + self.state_clocks.bytes()
            + self.state_answers.bytes()
            + self.entities.bytes()
            + self.queue_entries.bytes()
            + self.queue_bodies.bytes()
            + self.queue_sessions.bytes()
            + self.queue_seen.bytes()
            + self.queue_numbers.bytes()
            + self.managed.bytes()
    }

    /// A message that the set puts, and that the store does not have yet.
    pub fn message(&self, tenant: TenantNumber, id: MessageId) -> Option<&Arc<Message>> {
        self.messages.get(&(tenant, id))
    }

    /// The bytes of a body that the set puts, and that the store does not have yet.
    pub fn queue_body(
        &self,
        tenant: TenantNumber,
        queue: QueueNumber,
        id: u64,
    ) -> Option<&Arc<[u8]>> {
        self.queue_bodies.get(&(tenant, queue, id))
    }

    /// Removes all changes and keeps the memory, within bounds.
    pub fn clear(&mut self) {
        self.sessions.clear();
        self.subscriptions.clear();
        self.entries.clear();
        self.messages.clear();
        self.received.clear();
        self.retained.clear();
        self.state.clear();
        self.state_clocks.clear();
        self.state_answers.clear();
        self.entities.clear();
        self.queue_entries.clear();
        self.queue_bodies.clear();
        self.queue_sessions.clear();
        self.queue_seen.clear();
        self.queue_numbers.clear();
        self.managed.clear();
        self.shard = None;
    }

    /// Appends the set to `batch`, each key once.
    ///
    /// # Panics
    /// If `names` lacks the name of a tenant that has a change.
    pub fn encode(&self, names: &TenantNames, batch: &mut Batch) {
        let mut record = Record { batch, key: Vec::new() };
        for ((tenant, client_id), change) in self.sessions.iter() {
            SessionKey { tenant: names.get(*tenant), client_id }.encode(&mut record.key);
            record.write(keys::SESSIONS, change, |session, out| session.encode(out));
        }
        for ((tenant, session, filter), change) in self.subscriptions.iter() {
            SubscriptionKey { tenant: names.get(*tenant), session: *session, filter }
                .encode(&mut record.key);
            record.write(keys::SUBSCRIPTIONS, change, SubscriptionRecord::encode);
        }
        for ((tenant, session, entry), change) in self.entries.iter() {
            EntryKey { tenant: names.get(*tenant), session: *session, entry: *entry }
                .encode(&mut record.key);
            record.write(keys::ENTRIES, change, EntryRecord::encode);
        }
        for ((tenant, message), change) in self.messages.iter() {
            MessageKey { tenant: names.get(*tenant), message: *message }.encode(&mut record.key);
            record.write(keys::MESSAGES, change, |message, out| encode_message(message, out));
        }
        for ((tenant, session, packet_id), change) in self.received.iter() {
            ReceivedKey { tenant: names.get(*tenant), session: *session, packet_id: *packet_id }
                .encode(&mut record.key);
            record.write(keys::RECEIVED, change, ReceivedRecord::encode);
        }
        for ((tenant, topic), change) in self.retained.iter() {
            RetainedKey { tenant: names.get(*tenant), topic }.encode(&mut record.key);
            record.write(keys::RETAINED, change, RetainedRecord::encode);
        }
        for ((tenant, key), change) in self.state.iter() {
            StateKey { tenant: names.get(*tenant), key }.encode(&mut record.key);
            record.write(keys::STATE, change, StateRecord::encode);
        }
        for (tenant, change) in self.state_clocks.iter() {
            StateClockKey { tenant: names.get(*tenant) }.encode(&mut record.key);
            record
                .write(keys::STATE_CLOCKS, change, |latest, out| encode_state_clock(*latest, out));
        }
        for ((tenant, session, packet_id), change) in self.state_answers.iter() {
            AnsweredKey { tenant: names.get(*tenant), session: *session, packet_id: *packet_id }
                .encode(&mut record.key);
            record.write(keys::STATE_ANSWERS, change, AnsweredRecord::encode);
        }
        self.encode_queues(names, &mut record);
    }

    /// Appends the changes of entities and their queues, and those of managed objects and the shard itself.
    fn encode_queues(&self, names: &TenantNames, record: &mut Record<'_>) {
        for ((tenant, path), change) in self.entities.iter() {
            EntityKey { tenant: names.get(*tenant), path }.encode(&mut record.key);
            record.write(keys::ENTITIES, change, EntityRecord::encode);
        }
        for ((tenant, queue, part, number), change) in self.queue_entries.iter() {
            let (tenant, queue, part, number) = (names.get(*tenant), *queue, *part, *number);
            QueueEntryKey { tenant, queue, part, number }.encode(&mut record.key);
            record.write(keys::QUEUE_ENTRIES, change, encode_queue_entry);
        }
        for ((tenant, queue, id), change) in self.queue_bodies.iter() {
            QueueBodyKey { tenant: names.get(*tenant), queue: *queue, id: *id }
                .encode(&mut record.key);
            record.write(keys::QUEUE_BODIES, change, |bytes, out| encode_body(bytes, out));
        }
        for ((tenant, queue, session), change) in self.queue_sessions.iter() {
            QueueSessionKey { tenant: names.get(*tenant), queue: *queue, session }
                .encode(&mut record.key);
            record.write(keys::QUEUE_SESSIONS, change, SessionStateRecord::encode);
        }
        for ((tenant, queue, message_id), change) in self.queue_seen.iter() {
            QueueSeenKey { tenant: names.get(*tenant), queue: *queue, message_id }
                .encode(&mut record.key);
            record.write(keys::QUEUE_SEEN, change, |until, out| encode_seen(*until, out));
        }
        for ((tenant, queue, part), change) in self.queue_numbers.iter() {
            QueueNumbersKey { tenant: names.get(*tenant), queue: *queue, part: *part }
                .encode(&mut record.key);
            record.write(keys::QUEUE_NUMBERS, change, |reserved, out| {
                encode_numbers(*reserved, out);
            });
        }
        for ((kind, tenant, name), change) in self.managed.iter() {
            ManagedKey { tenant, kind: *kind, name }.encode(&mut record.key);
            record.write(keys::MANAGED, change, ManagedRecord::encode);
        }
        if let Some(shard) = self.shard {
            ShardKey.encode(&mut record.key);
            record.write(keys::SHARD, &Change::Put(shard), ShardRecord::encode);
        }
    }
}

/// Writes records to a batch; the buffer for the key is reused for each record.
struct Record<'a> {
    batch: &'a mut Batch,
    key: Vec<u8>,
}

impl Record<'_> {
    /// Writes a change of the key in the buffer.
    fn write<T>(
        &mut self,
        keyspace: barid_store::Keyspace,
        change: &Change<T>,
        encode: impl FnOnce(&T, &mut Vec<u8>),
    ) {
        match change.value() {
            Some(value) => self.batch.put_with(keyspace, &self.key, |out| encode(value, out)),
            None => self.batch.remove(keyspace, &self.key),
        }
    }
}

impl Key for (TenantNumber, Box<str>) {
    fn text_len(&self) -> usize {
        self.1.len()
    }
}

impl Key for (TenantNumber, SessionNumber, Box<str>) {
    fn text_len(&self) -> usize {
        self.2.len()
    }
}

impl Key for (TenantNumber, Arc<[u8]>) {
    fn text_len(&self) -> usize {
        self.1.len()
    }
}

impl Key for (TenantNumber, QueueNumber, Arc<str>) {
    fn text_len(&self) -> usize {
        self.2.len()
    }
}

impl Key for ManagedName {
    fn text_len(&self) -> usize {
        self.1.len() + self.2.len()
    }
}

impl Key for (TenantNumber, SessionNumber, EntryNumber) {}

impl Key for (TenantNumber, QueueNumber, Part, SequenceNumber) {}

impl Key for (TenantNumber, QueueNumber, Part) {}

impl Key for (TenantNumber, SessionNumber, PacketId) {}

impl Key for (TenantNumber, MessageId) {}

impl Key for TenantNumber {}

impl Weigh for Arc<Message> {
    fn weight(&self) -> usize {
        self.size() + 16
    }
}

impl Weigh for RetainedRecord {
    fn weight(&self) -> usize {
        self.message.weight() + self.holder.as_ref().map_or(0, |holder| holder.name().len()) + 16
    }
}

impl Weigh for EntryRecord {
    fn weight(&self) -> usize {
        24
    }
}

impl Weigh for Box<SessionRecord> {
    fn weight(&self) -> usize {
        24 + self.will.as_ref().map_or(0, |will| will.message.size())
    }
}

impl Weigh for SubscriptionRecord {
    fn weight(&self) -> usize {
        4
    }
}

impl Weigh for StateRecord {
    fn weight(&self) -> usize {
        let token = self.fencing_token.as_ref().map_or(0, |token| token.as_hlc().node.len() + 16);
        let holder = self.holder.as_ref().map_or(0, |holder| holder.name().len());
        self.value.len() + token + holder + 24
    }
}

impl Weigh for Version {
    fn weight(&self) -> usize {
        8
    }
}

impl Weigh for AnsweredRecord {
    fn weight(&self) -> usize {
        40
    }
}

impl Weigh for EntityRecord {
    fn weight(&self) -> usize {
        self.definition.len() + 9
    }
}

impl Weigh for ManagedRecord {
    fn weight(&self) -> usize {
        self.text.len() + 17
    }
}

impl Weigh for Entry {
    fn weight(&self) -> usize {
        let id = |id: Option<&str>| id.map_or(0, str::len);
        // Overlays are not counted: they are bounded in size, and rare.
        24 + id(self.session.as_deref()) + id(self.message_id.as_deref())
    }
}

impl Weigh for Arc<[u8]> {
    fn weight(&self) -> usize {
        self.len() + 1
    }
}

impl Weigh for SessionStateRecord {
    fn weight(&self) -> usize {
        self.state.len() + 8
    }
}

impl Weigh for WallTime {
    fn weight(&self) -> usize {
        8
    }
}

impl Weigh for SequenceNumber {
    fn weight(&self) -> usize {
        8
    }
}

impl Weigh for ReceivedRecord {
    fn weight(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Some { queues, .. } => 10 * (queues.len() + 1),
        }
    }
}
