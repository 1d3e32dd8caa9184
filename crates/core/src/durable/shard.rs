//! A shard: the unit of ownership on the durable plane.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use statestore_proto::Version;

use super::changes::Change;
use super::keys::TENANT_LEN_MAX;
use super::{
    ReceivedIn, ReceivedRecord, RetainedRecord, SessionRecord, ShardRecord, SubscriptionRecord,
    WriteSet,
};
use crate::entity::{Part, SequenceNumber};
use crate::ids::PacketId;
use crate::ids::{
    EntryNumber, MessageId, QueueNumber, SessionNumber, ShardIndex, StoredAs, TenantNumber,
};
use crate::message::Message;
use crate::session::EntryRecord;
use crate::state_store::{AnsweredRecord, StateRecord};

/// Number of bits of a session number below the shard index.
const SESSION_BITS: u32 = 48;

/// Number of session numbers that are reserved at a time. More are reserved when half of them are used, long before
/// they are needed.
const NUMBERS_RESERVED: u64 = 1 << 20;

/// The changes to be written to one store, the numbers that are assigned in it, and the reference count of each of its
/// messages.
///
/// Changes are noted in the current *batch*. [`take`](Self::take) hands the batch over to be committed and begins the
/// next one. A batch can be [sealed](Self::seal) some time before: then later changes are noted in the next batch, but a
/// message of the sealed batch that is removed still comes to nothing. Each call notes its changes in one batch, so that they are durable together or not at all: a message is
/// put with the first entry that refers to it and removed with the last, and no crash leaves one without the other.
#[derive(Debug)]
pub struct Shard {
    index: ShardIndex,
    batch: u64,
    pub(super) changes: WriteSet,
    /// The batch before the current one, if it is sealed and not taken yet.
    sealed: Option<WriteSet>,
    /// An empty set that is kept for its memory.
    spare: WriteSet,
    tenants: Arc<TenantNames>,
    references: HashMap<MessageId, References, FixedState>,
    /// QoS 2 messages that were received and not released, and which sessions and queues of this shard have them.
    received: HashMap<(SessionNumber, PacketId), (TenantNumber, ReceivedRecord), FixedState>,
    /// The greatest number that an entry of a part of a queue ever had: a greater number is new to the store.
    pub(super) newest: HashMap<(QueueNumber, Part), SequenceNumber, FixedState>,
    next_message: MessageId,
    /// The next number for sessions and for queues.
    next_session: SessionNumber,
    /// Numbers from this one on are not assigned before the store has another reservation.
    reserved: SessionNumber,
    /// Number of times that the shard was opened.
    epoch: u64,
}

/// The entries that refer to a message.
#[derive(Clone, Copy, Debug, Default)]
struct References {
    /// Number of the entries; never 0 in the map.
    count: u32,
    /// Whether there ever was more than one.
    were_several: bool,
}

/// Names of tenants by number: keys contain the name, changes the number.
#[derive(Clone, Debug, Default)]
pub struct TenantNames {
    by_number: HashMap<TenantNumber, Box<str>, FixedState>,
}

/// The shard that `session` belongs to.
pub fn shard_of(session: SessionNumber) -> ShardIndex {
    u16::try_from(session >> SESSION_BITS).expect("64 - 48 bits")
}

/// A number of a session or a queue without the bits of its shard.
pub fn number_in_shard(session: SessionNumber) -> u64 {
    session & ((1 << SESSION_BITS) - 1)
}

impl Shard {
    /// Creates a shard with an empty store.
    pub fn new(index: ShardIndex) -> Self {
        Self {
            index,
            batch: 1,
            changes: WriteSet::default(),
            sealed: None,
            spare: WriteSet::default(),
            tenants: Arc::default(),
            references: HashMap::default(),
            received: HashMap::default(),
            newest: HashMap::default(),
            next_message: 1,
            next_session: u64::from(index) << SESSION_BITS | 1,
            reserved: SessionNumber::MAX,
            epoch: 0,
        }
    }

    /// The shard's index.
    pub fn index(&self) -> ShardIndex {
        self.index
    }

    /// Tells the shard the name of a tenant. Must be called before the first change of the tenant.
    ///
    /// # Panics
    /// If the name has more than [`TENANT_LEN_MAX`] bytes.
    pub fn name_tenant(&mut self, tenant: TenantNumber, name: &str) {
        assert!(name.len() <= TENANT_LEN_MAX, "the name of a tenant is too long for a key");
        if !self.tenants.by_number.contains_key(&tenant) {
            Arc::make_mut(&mut self.tenants).by_number.insert(tenant, name.into());
        }
    }

    /// The names of all tenants that have or had a change, for [`WriteSet::encode`].
    pub fn tenant_names(&self) -> Arc<TenantNames> {
        Arc::clone(&self.tenants)
    }

    /// Notes that the shard was opened, and reserves numbers for sessions and queues. Numbers may be assigned once that
    /// is durable: then no later session gets a number of which a crash has left traces in other shards.
    pub fn begin_tenure(&mut self) {
        self.epoch += 1;
        self.reserve();
    }

    /// Number of times that the shard was opened.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn reserve_more(&mut self) {
        if self.reserved.saturating_sub(self.next_session) < NUMBERS_RESERVED / 2 {
            self.reserve();
        }
    }

    fn reserve(&mut self) {
        self.reserved = self.next_session + NUMBERS_RESERVED;
        let reserved = number_in_shard(self.reserved);
        self.changes.shard = Some(ShardRecord { epoch: self.epoch, reserved });
    }

    /// Assigns a number that no session and no queue has or had, nor any record that one may have left behind in this
    /// shard or in another.
    pub fn new_session_number(&mut self) -> SessionNumber {
        let number = self.next_session;
        self.next_session += 1;
        self.reserve_more();
        assert_eq!(shard_of(number), self.index, "2^48 sessions are more than there ever are");
        number
    }

    /// Assigns `count` consecutive message numbers, and returns the first.
    pub fn new_message_ids(&mut self, count: usize) -> MessageId {
        let first = self.next_message;
        self.next_message += count as u64;
        first
    }

    /// Puts a new entry, which has not been released, and also its message if no other entry refers to it.
    pub fn put_entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
        message: &Arc<Message>,
    ) {
        debug_assert_eq!(record.refers_to(), Some(record.message));
        let id = record.message;
        let references = self.references.entry(id).or_default();
        references.count += 1;
        if references.count > 1 {
            references.were_several = true;
        } else {
            self.changes.messages.note((tenant, id), Change::New(Arc::clone(message)));
        }
        self.changes.entries.note((tenant, session, entry), Change::New(record));
    }

    /// Notes that an entry has changed from [`Waiting`](crate::session::Phase::Waiting) to
    /// [`Sent`](crate::session::Phase::Sent), or back.
    pub fn update_entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
    ) {
        debug_assert_eq!(record.refers_to(), Some(record.message));
        self.changes.entries.note((tenant, session, entry), Change::Put(record));
    }

    /// Notes that PUBREC was received for an entry. Only the packet identifier of the entry is kept; its message is
    /// removed if no other entry refers to it.
    pub fn release_entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        stored: StoredAs,
        packet_id: PacketId,
    ) {
        let key = (tenant, session, stored.entry.get());
        self.changes.entries.note(key, Change::Put(EntryRecord::released(packet_id)));
        self.drop_reference(tenant, stored.message);
    }

    /// Puts an entry that was released elsewhere: it refers to no message.
    pub fn put_released(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        packet_id: PacketId,
    ) {
        let record = EntryRecord::released(packet_id);
        self.changes.entries.note((tenant, session, entry), Change::New(record));
    }

    /// Removes an entry, and also its message if no other entry refers to it. `released` says that the entry was
    /// [released](Self::release_entry), and no longer refers to a message.
    pub fn remove_entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        stored: StoredAs,
        released: bool,
    ) {
        if !released && self.cancel_sealed(tenant, session, stored) {
            return;
        }
        self.changes.entries.note((tenant, session, stored.entry.get()), Change::Remove);
        if !released {
            self.drop_reference(tenant, stored.message);
        }
    }

    fn drop_reference(&mut self, tenant: TenantNumber, message: MessageId) {
        let references = self.references.get_mut(&message);
        let references = references.expect("an entry that is not released has a reference");
        references.count -= 1;
        if references.count == 0 {
            self.references.remove(&message);
            self.changes.messages.note((tenant, message), Change::Remove);
        }
    }

    /// Removes an entry and its message from the sealed batch, if both are new there and no other entry ever referred to
    /// the message. Returns false if nothing was removed.
    fn cancel_sealed(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        stored: StoredAs,
    ) -> bool {
        let Some(sealed) = &mut self.sealed else { return false };
        let (entry, message) = ((tenant, session, stored.entry.get()), (tenant, stored.message));
        let is_only = |references: &References| references.count == 1 && !references.were_several;
        let is_cancelled = self.references.get(&stored.message).is_some_and(is_only)
            && sealed.entries.is_new(&entry)
            && sealed.messages.is_new(&message);
        if is_cancelled {
            sealed.entries.cancel(&entry);
            sealed.messages.cancel(&message);
            // The entry may have been updated since.
            self.changes.entries.cancel(&entry);
            self.references.remove(&stored.message);
        }
        is_cancelled
    }

    /// Puts the record of a session, in place of its earlier one.
    pub fn put_session(&mut self, tenant: TenantNumber, client_id: &str, record: SessionRecord) {
        self.changes.sessions.note((tenant, client_id.into()), Change::Put(Box::new(record)));
    }

    /// Removes the record that [`put_session`](Self::put_session) has put, and nothing else of the session.
    pub fn remove_session(&mut self, tenant: TenantNumber, client_id: &str) {
        self.changes.sessions.note((tenant, client_id.into()), Change::Remove);
    }

    /// Puts a subscription, in place of the one to the same filter.
    pub fn put_subscription(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    ) {
        self.changes.subscriptions.note((tenant, session, filter.into()), Change::Put(record));
    }

    /// Removes a subscription.
    pub fn remove_subscription(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        filter: &str,
    ) {
        self.changes.subscriptions.note((tenant, session, filter.into()), Change::Remove);
    }

    /// Returns the note of a QoS 2 message that a client has published and not released, if a session or a queue of this shard
    /// has it. The client's session may belong to another shard.
    pub fn received(&self, session: SessionNumber, packet_id: PacketId) -> Option<&ReceivedRecord> {
        self.received.get(&(session, packet_id)).map(|(_, record)| record)
    }

    /// Changes the note of a QoS 2 message: a session or a queue of this shard gets it, or all recipients have it. The
    /// delivery must be noted in the same batch.
    pub fn note_received(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
        note: impl FnOnce(&mut ReceivedRecord),
    ) {
        let empty = || (tenant, ReceivedRecord::default());
        let (_, record) = self.received.entry((session, packet_id)).or_insert_with(empty);
        note(record);
        self.changes.received.note((tenant, session, packet_id), Change::Put(record.clone()));
    }

    /// Notes that a QoS 2 message was released. Returns false if this shard has no note of it.
    pub fn remove_received(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
    ) -> bool {
        let was_noted = self.received.remove(&(session, packet_id)).is_some();
        if was_noted {
            self.changes.received.note((tenant, session, packet_id), Change::Remove);
        }
        was_noted
    }

    /// Puts the retained message of a topic, in place of its earlier one.
    pub fn set_retained(&mut self, tenant: TenantNumber, record: RetainedRecord) {
        let topic = record.message.publication().topic.into();
        self.changes.retained.note((tenant, topic), Change::Put(record));
    }

    /// Removes the retained message of `topic`.
    pub fn remove_retained(&mut self, tenant: TenantNumber, topic: &str) {
        self.changes.retained.note((tenant, topic.into()), Change::Remove);
    }

    /// Puts the record of a key of the state store, in place of its earlier one.
    pub fn put_state(&mut self, tenant: TenantNumber, key: &Arc<[u8]>, record: StateRecord) {
        self.changes.state.note((tenant, Arc::clone(key)), Change::Put(record));
    }

    /// Removes a key of the state store.
    pub fn remove_state(&mut self, tenant: TenantNumber, key: &Arc<[u8]>) {
        self.changes.state.note((tenant, Arc::clone(key)), Change::Remove);
    }

    /// Notes the last version that was assigned in a tenant's state store. Called with each change that has a version,
    /// so that no version is assigned again after a crash.
    pub fn put_state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        self.changes.state_clocks.note(tenant, Change::Put(latest));
    }

    /// Removes the version that [`put_state_clock`](Self::put_state_clock) has put, after the tenant was removed.
    pub fn remove_state_clock(&mut self, tenant: TenantNumber) {
        self.changes.state_clocks.note(tenant, Change::Remove);
    }

    /// Notes the answer to a request to the state store. Its `session` may belong to another shard.
    pub fn put_answered(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) {
        self.changes.state_answers.note((tenant, session, packet_id), Change::Put(record));
    }

    /// Removes the answer to a request.
    pub fn remove_answered(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
    ) {
        self.changes.state_answers.note((tenant, session, packet_id), Change::Remove);
    }

    /// The number of the current batch. The first is 1.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Sets the number of the current batch. Earlier numbers belong to the previous tenure.
    pub fn continue_with(&mut self, batch: u64) {
        self.batch = batch;
    }

    /// Discards the changes of the current batch, which will never be written.
    pub fn discard(&mut self) {
        self.changes.clear();
    }

    /// The QoS 2 messages noted here whose publishing clients have their sessions in the shard `home`.
    pub fn received_of(&self, home: ShardIndex) -> Vec<ReceivedIn> {
        let of_home =
            |((session, _), _): &(&(SessionNumber, PacketId), _)| shard_of(*session) == home;
        let received = self.received.iter().filter(of_home);
        let shard = self.index;
        received
            .map(|((session, packet_id), (tenant, _))| ReceivedIn {
                shard,
                tenant: *tenant,
                session: *session,
                packet_id: *packet_id,
            })
            .collect()
    }

    /// The changes of the current batch.
    pub fn pending(&self) -> &WriteSet {
        &self.changes
    }

    /// The changes of the sealed batch, if there is one.
    pub fn sealed(&self) -> Option<&WriteSet> {
        self.sealed.as_ref()
    }

    /// Seals the current batch, unless one is sealed already: the next batch becomes the current one.
    pub fn seal(&mut self) {
        if self.sealed.is_none() {
            self.sealed = Some(self.take().1);
        }
    }

    /// Takes the sealed batch and its number. If none is sealed, takes the current batch and begins the next one. The
    /// set may be empty although somebody waits for the number: its changes may have cancelled each other.
    pub fn take(&mut self) -> (u64, WriteSet) {
        if let Some(sealed) = self.sealed.take() {
            return (self.batch - 1, sealed);
        }
        let number = self.batch;
        self.batch += 1;
        let next = std::mem::take(&mut self.spare);
        (number, std::mem::replace(&mut self.changes, next))
    }

    /// Takes back, for its memory, a set that has been committed and [cleared](WriteSet::clear).
    pub fn reuse(&mut self, empty: WriteSet) {
        debug_assert!(empty.is_empty());
        self.spare = empty;
    }

    /// Returns how many entries refer to a message.
    pub fn references(&self, message: MessageId) -> u32 {
        self.references.get(&message).map_or(0, |references| references.count)
    }

    /// Counts the reference of an entry that was read from the store.
    pub(super) fn recover_reference(&mut self, message: MessageId) {
        self.references.entry(message).or_default().count += 1;
        self.next_message = self.next_message.max(message.saturating_add(1));
    }

    /// Restores the note of a QoS 2 message.
    pub(super) fn recover_received(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
        record: ReceivedRecord,
    ) {
        self.received.insert((session, packet_id), (tenant, record));
    }

    /// Restores the shard's own record.
    pub(super) fn recover_tenure(&mut self, ShardRecord { epoch, reserved }: ShardRecord) {
        self.epoch = epoch;
        let reserved = u64::from(self.index) << SESSION_BITS | reserved;
        self.next_session = self.next_session.max(reserved);
    }

    /// Ensures that this shard assigns no number up to `session`, if that is one of its own. To be called for numbers
    /// that are found in any store of the data directory: versions that reserved no numbers avoided those that they
    /// found.
    pub fn skip_number(&mut self, session: SessionNumber) {
        if shard_of(session) == self.index && session >= self.next_session {
            self.next_session = session.saturating_add(1);
            self.reserve_more();
        }
    }
}

impl TenantNames {
    /// Returns the name of a tenant.
    ///
    /// # Panics
    /// If the shard was not told the name.
    pub fn get(&self, tenant: TenantNumber) -> &str {
        self.by_number.get(&tenant).expect("a tenant is named before its first change")
    }
}
