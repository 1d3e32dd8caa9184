//! The unit of ownership on the durable plane.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use statestore_proto::Version;

use super::changes::Change;
use super::keys::TENANT_LEN_MAX;
use super::{ReceivedIn, ReceivedRecord, SessionRecord, ShardRecord, SubscriptionRecord, WriteSet};
use crate::entity::{Part, SequenceNumber};
use crate::ids::PacketId;
use crate::ids::{
    EntryNumber, MessageId, QueueNumber, SessionNumber, ShardIndex, StoredAs, TenantNumber,
};
use crate::message::Message;
use crate::session::EntryRecord;
use crate::state_store::{AnsweredRecord, StateRecord};

/// The bits of a session number below its shard.
const SESSION_BITS: u32 = 48;

/// Numbers of sessions that are reserved at a time. More are reserved when half of them is used: long before they are needed.
const NUMBERS_RESERVED: u64 = 1 << 20;

/// What has to be written to one store, the numbers that are given in it, and how often each message
/// in it is referred to.
///
/// Changes are noted in the *batch* that accumulates. [`take`](Self::take) hands it over to be
/// committed and begins the next one. Each call notes its changes in one batch, and so together or
/// not at all: a message comes with the first entry that refers to it and goes with the last, and no
/// crash leaves one without the other.
#[derive(Debug)]
pub struct Shard {
    index: ShardIndex,
    batch: u64,
    pub(super) changes: WriteSet,
    /// Empty, with memory.
    spare: WriteSet,
    tenants: Arc<TenantNames>,
    /// How many entries refer to a message; never 0.
    references: HashMap<MessageId, u32, FixedState>,
    /// QoS 2 messages that were received and not released, and who of this shard has them.
    received: HashMap<(SessionNumber, PacketId), (TenantNumber, ReceivedRecord), FixedState>,
    /// The greatest number that an entry of a part of a queue ever had: what is greater is new to the
    /// store.
    pub(super) newest: HashMap<(QueueNumber, Part), SequenceNumber, FixedState>,
    next_message: MessageId,
    /// Of sessions and of queues.
    next_session: SessionNumber,
    /// No number from this one on is given before the store has another reservation.
    reserved: SessionNumber,
    /// How often the shard was opened.
    epoch: u64,
}

/// The names of tenants, which keys have, for their numbers, which changes have.
#[derive(Clone, Debug, Default)]
pub struct TenantNames {
    by_number: HashMap<TenantNumber, Box<str>, FixedState>,
}

/// The shard that `session` belongs to.
pub fn shard_of(session: SessionNumber) -> ShardIndex {
    u16::try_from(session >> SESSION_BITS).expect("64 - 48 bits")
}

/// What a number of a session or a queue is among those of its shard.
pub fn number_in_shard(session: SessionNumber) -> u64 {
    session & ((1 << SESSION_BITS) - 1)
}

impl Shard {
    /// A shard with an empty store.
    pub fn new(index: ShardIndex) -> Self {
        Self {
            index,
            batch: 1,
            changes: WriteSet::default(),
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

    /// Which one it is.
    pub fn index(&self) -> ShardIndex {
        self.index
    }

    /// Says what a tenant is called. Comes before the first change of the tenant.
    ///
    /// # Panics
    /// If the name has more than [`TENANT_LEN_MAX`] bytes.
    pub fn name_tenant(&mut self, tenant: TenantNumber, name: &str) {
        assert!(name.len() <= TENANT_LEN_MAX, "the name of a tenant is too long for a key");
        if !self.tenants.by_number.contains_key(&tenant) {
            Arc::make_mut(&mut self.tenants).by_number.insert(tenant, name.into());
        }
    }

    /// The names of all tenants that have or had a change: what [`WriteSet::encode`] needs.
    pub fn tenant_names(&self) -> Arc<TenantNames> {
        Arc::clone(&self.tenants)
    }

    /// Whoever opened it notes that, and reserves numbers for sessions and queues. When that is durable, numbers may be given:
    /// whatever a crash leaves of them in other shards, no later session has one of them.
    pub fn begin_tenure(&mut self) {
        self.epoch += 1;
        self.reserve();
    }

    /// How often it was opened.
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

    /// A number that no session and no queue has, nor anything that one may have left behind in this shard or in another.
    pub fn new_session_number(&mut self) -> SessionNumber {
        let number = self.next_session;
        self.next_session += 1;
        self.reserve_more();
        assert_eq!(shard_of(number), self.index, "2^48 sessions are more than there ever are");
        number
    }

    /// `count` numbers for messages, one after the other; this is the first.
    pub fn new_message_ids(&mut self, count: usize) -> MessageId {
        let first = self.next_message;
        self.next_message += count as u64;
        first
    }

    /// Puts a new entry, which has not been released, and its message if no other entry has.
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
        let references = self.references.entry(id).or_insert(0);
        *references += 1;
        if *references == 1 {
            self.changes.messages.note((tenant, id), Change::New(Arc::clone(message)));
        }
        self.changes.entries.note((tenant, session, entry), Change::New(record));
    }

    /// Notes that an entry has come from [`Waiting`](crate::session::Phase::Waiting) to
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

    /// Notes that PUBREC has come for an entry: of it the packet identifier is left, and its message
    /// goes if no other entry has it.
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

    /// Removes an entry, and its message if no other entry has it. `released`: it was
    /// [released](Self::release_entry), and has no message any more.
    pub fn remove_entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        stored: StoredAs,
        released: bool,
    ) {
        self.changes.entries.note((tenant, session, stored.entry.get()), Change::Remove);
        if !released {
            self.drop_reference(tenant, stored.message);
        }
    }

    fn drop_reference(&mut self, tenant: TenantNumber, message: MessageId) {
        let references = self.references.get_mut(&message);
        let references = references.expect("an entry that is not released has a reference");
        *references -= 1;
        if *references == 0 {
            self.references.remove(&message);
            self.changes.messages.note((tenant, message), Change::Remove);
        }
    }

    /// Puts what is stored of a session, in place of what was.
    pub fn put_session(&mut self, tenant: TenantNumber, client_id: &str, record: SessionRecord) {
        self.changes.sessions.note((tenant, client_id.into()), Change::Put(Box::new(record)));
    }

    /// Removes what [`put_session`](Self::put_session) has put, and nothing else of the session.
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

    /// Notes that somebody of this shard gets such a message, or that everybody has it. Whoever gets it is noted in the
    /// same batch.
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

    /// Notes that such a message was released. False: it was not noted here that it was received.
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

    /// Makes `message` the retained message of its topic.
    pub fn set_retained(&mut self, tenant: TenantNumber, message: &Arc<Message>) {
        let topic = message.publication().topic.into();
        self.changes.retained.note((tenant, topic), Change::Put(Arc::clone(message)));
    }

    /// Removes the retained message of `topic`.
    pub fn remove_retained(&mut self, tenant: TenantNumber, topic: &str) {
        self.changes.retained.note((tenant, topic.into()), Change::Remove);
    }

    /// Puts what a key of the state store has, in place of what it had.
    pub fn put_state(&mut self, tenant: TenantNumber, key: &Arc<[u8]>, record: StateRecord) {
        self.changes.state.note((tenant, Arc::clone(key)), Change::Put(record));
    }

    /// Removes a key of the state store.
    pub fn remove_state(&mut self, tenant: TenantNumber, key: &Arc<[u8]>) {
        self.changes.state.note((tenant, Arc::clone(key)), Change::Remove);
    }

    /// Notes the last version that was given in a tenant's state store. It comes with each change
    /// that has a version, so that no version is given again after a crash.
    pub fn put_state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        self.changes.state_clocks.note(tenant, Change::Put(latest));
    }

    /// Removes what [`put_state_clock`](Self::put_state_clock) has put: the tenant has gone.
    pub fn remove_state_clock(&mut self, tenant: TenantNumber) {
        self.changes.state_clocks.note(tenant, Change::Remove);
    }

    /// Notes what a request to the state store was answered, of `session`, which may belong to another
    /// shard.
    pub fn put_answered(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) {
        self.changes.state_answers.note((tenant, session, packet_id), Change::Put(record));
    }

    /// Forgets such an answer.
    pub fn remove_answered(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
    ) {
        self.changes.state_answers.note((tenant, session, packet_id), Change::Remove);
    }

    /// The number of the batch that accumulates. The first is 1.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Goes on with a number of the batches: earlier ones belong to the tenure before.
    pub fn continue_with(&mut self, batch: u64) {
        self.batch = batch;
    }

    /// Forgets what has accumulated: nobody will ever write it.
    pub fn discard(&mut self) {
        self.changes.clear();
    }

    /// What was received of clients whose sessions belong to a shard.
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

    /// What has accumulated so far.
    pub fn pending(&self) -> &WriteSet {
        &self.changes
    }

    /// What has accumulated, and the number of that batch; the next one begins. The set may be
    /// empty, and somebody may still wait for the number: what was to be written has gone again.
    pub fn take(&mut self) -> (u64, WriteSet) {
        let number = self.batch;
        self.batch += 1;
        let next = std::mem::take(&mut self.spare);
        (number, std::mem::replace(&mut self.changes, next))
    }

    /// Takes back the memory of a set that has been committed, and [cleared](WriteSet::clear).
    pub fn reuse(&mut self, empty: WriteSet) {
        debug_assert!(empty.is_empty());
        self.spare = empty;
    }

    /// How many entries refer to a message.
    pub fn references(&self, message: MessageId) -> u32 {
        self.references.get(&message).copied().unwrap_or(0)
    }

    /// Counts an entry found in the store.
    pub(super) fn recover_reference(&mut self, message: MessageId) {
        *self.references.entry(message).or_insert(0) += 1;
        self.next_message = self.next_message.max(message.saturating_add(1));
    }

    /// Puts back what is noted of a QoS 2 message.
    pub(super) fn recover_received(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        packet_id: PacketId,
        record: ReceivedRecord,
    ) {
        self.received.insert((session, packet_id), (tenant, record));
    }

    /// Puts back what the store has of the shard itself.
    pub(super) fn recover_tenure(&mut self, ShardRecord { epoch, reserved }: ShardRecord) {
        self.epoch = epoch;
        let reserved = u64::from(self.index) << SESSION_BITS | reserved;
        self.next_session = self.next_session.max(reserved);
    }

    /// Gives no number any more up to this one, which was found in some store of the data directory, if this shard has given
    /// it. Versions that reserved no numbers gave none that they found.
    pub fn skip_number(&mut self, session: SessionNumber) {
        if shard_of(session) == self.index && session >= self.next_session {
            self.next_session = session.saturating_add(1);
            self.reserve_more();
        }
    }
}

impl TenantNames {
    /// The name of a tenant.
    ///
    /// # Panics
    /// If the shard was not told.
    pub fn get(&self, tenant: TenantNumber) -> &str {
        self.by_number.get(&tenant).expect("a tenant is named before its first change")
    }
}
