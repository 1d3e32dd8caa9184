//! Reading of a store into a shard, and to the owners of the sessions, the entities, the retained messages and the
//! state store.
//!
//! The stores of a data directory are read separately, and may be read in parallel ([`recover`]); then they are opened
//! one after the other ([`Homes::open`]). Records are passed on as they are read, and not collected.
//!
//! A crash may leave *orphans*, records of a session or an entity that no longer exists: a large one is removed in
//! several batches, and the *traces* of a session lie in other shards. Orphans are not passed on; their removal is in
//! the first batch of the shard. There are no messages without an entry, as [`Shard`] removes a message in the batch of
//! its last entry, and no bodies without an entry, as an entity removes both at once. Therefore messages and bodies are
//! not read here at all.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;

use barid_store::{Keyspace, Store, StoreError};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use statestore_proto::Version;

use super::keys::{
    self, AnsweredKey, EntryKey, ManagedKey, NAMES, ReceivedKey, RetainedKey, SessionKey, ShardKey,
    StateClockKey, StateKey, SubscriptionKey,
};
use super::records::{RecordError, decode_state_clock};
use super::shard::{Shard, shard_of};
use super::{
    EntityRecord, ManagedRecord, ReceivedRecord, RetainedRecord, SessionRecord, SessionStateRecord,
    ShardRecord, SubscriptionRecord,
};
use crate::entity::{Entry, Part, SequenceNumber};
use crate::ids::{
    EntryNumber, PacketId, QueueNumber, SessionNumber, ShardIndex, StoredAs, TenantNumber,
};
use crate::session::EntryRecord;
use crate::state_store::{AnsweredRecord, StateRecord};
use crate::time::WallTime;

mod homes;
mod queues;

pub use homes::Homes;

/// Receives the records of a store: all sessions, then all subscriptions, all entries, all retained messages, all
/// clocks of the state store and all its keys; then all entities, and the reservations and contents of their queues.
/// Subscriptions and entries belong to sessions that were passed before; the contents of a queue belong to an entity
/// that was passed before. Managed objects come last.
pub trait Recovery {
    /// Returns the number of the tenant with this name, which must be the same in all shards. Called whenever the
    /// tenant differs from that of the record before.
    fn tenant(&mut self, name: &str) -> TenantNumber;

    /// Receives a session.
    fn session(&mut self, tenant: TenantNumber, client_id: &str, record: SessionRecord);

    /// Receives a subscription.
    fn subscription(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    );

    /// Receives an entry; those of one session come one after the other, in ascending order.
    fn entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
    );

    /// Receives a retained message; those of one tenant come sorted as in
    /// [`RetainedStore`](crate::retained::RetainedStore).
    fn retained(&mut self, tenant: TenantNumber, record: RetainedRecord);

    /// Receives the last version that the shard knows of in a tenant's state store. The tenant's clock has to continue
    /// from the latest of all shards.
    fn state_clock(&mut self, tenant: TenantNumber, latest: Version);

    /// Receives a key of the state store; those of one tenant come in the order of their bytes. The key may have
    /// expired.
    fn state(&mut self, tenant: TenantNumber, key: &[u8], record: StateRecord);

    /// Receives an entity.
    fn entity(&mut self, tenant: TenantNumber, path: &str, record: EntityRecord);

    /// Receives a reservation: sequence numbers below `reserved` may have been assigned.
    fn queue_numbers(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
        reserved: SequenceNumber,
    );

    /// Receives the state of a message session.
    fn queue_state(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        session: Arc<str>,
        record: SessionStateRecord,
    );

    /// Receives an entry, whose body is in the store only; those of one part come one after the other, in ascending
    /// order.
    fn queue_entry(&mut self, tenant: TenantNumber, queue: QueueNumber, part: Part, entry: Entry);

    /// Receives the id of a message that was sent, and the time until which another message with this id is a
    /// duplicate.
    fn queue_seen(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        message_id: Arc<str>,
        until: WallTime,
    );

    /// Receives a managed object, or the mark of a kind. The tenant in the key need not have any other record.
    fn managed(&mut self, key: ManagedKey<'_>, record: ManagedRecord);
}

/// A shard that has been read and is not open yet.
#[derive(Debug)]
pub struct Recovered {
    shard: Shard,
    sessions: HashMap<SessionNumber, TenantNumber, FixedState>,
    traces: Vec<Trace>,
}

/// A record that a client's PUBLISH has left in a shard. The client's session may belong to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A message of QoS 2 was received and not released.
    Received(ReceivedIn),
    /// A request to the state store was answered.
    Answered(AnsweredIn),
}

/// A QoS 2 message that was received and not released, as noted in one of the shards that store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedIn {
    /// The shard.
    pub shard: ShardIndex,
    /// The tenant of the publishing client.
    pub tenant: TenantNumber,
    /// The session of the client that published it.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
}

/// The answer to a request to the state store, in the shard of the key that the request was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredIn {
    /// The shard.
    pub shard: ShardIndex,
    /// The tenant of the requesting client.
    pub tenant: TenantNumber,
    /// The session of the requesting client.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// The answer.
    pub record: AnsweredRecord,
}

/// Reason for which a store cannot be recovered. Nothing has been changed.
#[derive(Debug)]
pub struct RecoveryError {
    /// The tenant of the record, if that can be read.
    pub tenant: Option<Box<str>>,
    /// The keyspace that was read.
    pub keyspace: Keyspace,
    /// The cause of the error.
    pub cause: RecoveryCause,
}

/// Cause of a [`RecoveryError`].
#[derive(Debug)]
pub enum RecoveryCause {
    /// A key or a record cannot be read.
    Record(RecordError),
    /// The store cannot be read.
    Store(StoreError),
}

/// Reads all of one shard's store except messages and bodies, and passes the records to `recovery`.
///
/// Costs a scan, and for each entry the counting of a reference.
///
/// # Errors
/// [`RecoveryError`] at the first record that cannot be read.
pub fn recover(
    index: ShardIndex,
    store: &dyn Store,
    recovery: &mut dyn Recovery,
) -> Result<Recovered, RecoveryError> {
    let mut reading = Reading {
        store,
        recovery,
        tenant: None,
        queues: HashMap::default(),
        recovered: Recovered {
            shard: Shard::new(index),
            sessions: HashMap::default(),
            traces: Vec::new(),
        },
    };
    reading.tenure()?;
    reading.sessions()?;
    reading.subscriptions()?;
    reading.entries()?;
    reading.received()?;
    reading.retained()?;
    reading.state_clocks()?;
    reading.state()?;
    reading.answered()?;
    reading.entities()?;
    reading.queue_numbers()?;
    reading.queue_states()?;
    reading.queue_entries()?;
    reading.queue_seen()?;
    reading.managed()?;
    Ok(reading.recovered)
}

/// A store that is being read.
struct Reading<'a> {
    store: &'a dyn Store,
    recovery: &'a mut dyn Recovery,
    /// The tenant of the previous record, which is nearly always that of the next.
    tenant: Option<(Box<str>, TenantNumber)>,
    /// The queues of the entities that were passed on.
    queues: HashMap<QueueNumber, TenantNumber, FixedState>,
    recovered: Recovered,
}

impl Reading<'_> {
    fn tenure(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::SHARD, |this, key, value| {
            ShardKey::decode(key)?;
            this.recovered.shard.recover_tenure(ShardRecord::decode(value)?);
            Ok(())
        })
    }

    fn sessions(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::SESSIONS, |this, key, value| {
            let SessionKey { tenant, client_id } = SessionKey::decode(key)?;
            let record = SessionRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            let Recovered { shard, sessions, .. } = &mut this.recovered;
            if shard_of(record.number) != shard.index() {
                return Err(RecordError::Malformed("a session belongs to another shard"));
            }
            if sessions.insert(record.number, tenant).is_some() {
                return Err(RecordError::Malformed("two sessions have the same number"));
            }
            shard.skip_number(record.number);
            this.recovery.session(tenant, client_id, record);
            Ok(())
        })
    }

    fn subscriptions(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::SUBSCRIPTIONS, |this, key, value| {
            let SubscriptionKey { tenant, session, filter } = SubscriptionKey::decode(key)?;
            let record = SubscriptionRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            if this.has(tenant, session) {
                this.recovery.subscription(tenant, session, filter, record);
            } else {
                this.recovered.shard.skip_number(session);
                this.recovered.shard.remove_subscription(tenant, session, filter);
            }
            Ok(())
        })
    }

    fn entries(&mut self) -> Result<(), RecoveryError> {
        // Orphans are removed after all references are counted: a message may have entries of other sessions.
        let mut orphans = Vec::new();
        let mut last = None;
        self.scan(keys::ENTRIES, |this, key, value| {
            let EntryKey { tenant, session, entry } = EntryKey::decode(key)?;
            let record = EntryRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            if let Some(message) = record.refers_to() {
                this.recovered.shard.recover_reference(message);
            }
            let lives = match last {
                Some((of, lives)) if of == (tenant, session) => lives,
                _ => this.has(tenant, session),
            };
            last = Some(((tenant, session), lives));
            if lives {
                this.recovery.entry(tenant, session, entry, record);
            } else {
                let released = record.refers_to().is_none();
                let entry = NonZeroU64::new(entry).expect("EntryKey::decode refuses 0");
                let stored = StoredAs { entry, message: record.message };
                orphans.push((tenant, session, stored, released));
            }
            Ok(())
        })?;
        for (tenant, session, stored, released) in orphans {
            self.recovered.shard.skip_number(session);
            self.recovered.shard.remove_entry(tenant, session, stored, released);
        }
        Ok(())
    }

    fn received(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::RECEIVED, |this, key, value| {
            let ReceivedKey { tenant, session, packet_id } = ReceivedKey::decode(key)?;
            let record = ReceivedRecord::decode(value)?;
            let (tenant, shard) = (this.tenant(tenant), this.recovered.shard.index());
            this.recovered.shard.recover_received(tenant, session, packet_id, record);
            let received = ReceivedIn { shard, tenant, session, packet_id };
            this.recovered.traces.push(Trace::Received(received));
            Ok(())
        })
    }

    fn retained(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::RETAINED, |this, key, value| {
            let record = RetainedRecord::decode(value)?;
            let topic = record.message.publication().topic;
            let RetainedKey { tenant, .. } = RetainedKey::decode(key, topic)?;
            let tenant = this.tenant(tenant);
            this.recovery.retained(tenant, record);
            Ok(())
        })
    }

    fn state_clocks(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::STATE_CLOCKS, |this, key, value| {
            let StateClockKey { tenant } = StateClockKey::decode(key)?;
            let latest = decode_state_clock(value)?;
            let tenant = this.tenant(tenant);
            this.recovery.state_clock(tenant, latest);
            Ok(())
        })
    }

    fn state(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::STATE, |this, key, value| {
            let StateKey { tenant, key } = StateKey::decode(key)?;
            let record = StateRecord::decode(value)?;
            let tenant = this.tenant(tenant);
            this.recovery.state(tenant, key, record);
            Ok(())
        })
    }

    fn answered(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::STATE_ANSWERS, |this, key, value| {
            let AnsweredKey { tenant, session, packet_id } = AnsweredKey::decode(key)?;
            let record = AnsweredRecord::decode(value)?;
            let (tenant, shard) = (this.tenant(tenant), this.recovered.shard.index());
            let answered = AnsweredIn { shard, tenant, session, packet_id, record };
            this.recovered.traces.push(Trace::Answered(answered));
            Ok(())
        })
    }

    fn managed(&mut self) -> Result<(), RecoveryError> {
        self.scan(keys::MANAGED, |this, key, value| {
            let key = ManagedKey::decode(key)?;
            let record = ManagedRecord::decode(value)?;
            record.check(key)?;
            this.recovery.managed(key, record);
            Ok(())
        })
    }

    fn has(&self, tenant: TenantNumber, session: SessionNumber) -> bool {
        self.recovered.sessions.get(&session) == Some(&tenant)
    }

    fn tenant(&mut self, name: &str) -> TenantNumber {
        match &self.tenant {
            Some((last, number)) if **last == *name => *number,
            _ => {
                let number = self.recovery.tenant(name);
                self.recovered.shard.name_tenant(number, name);
                self.tenant = Some((name.into(), number));
                number
            }
        }
    }

    /// Passes each record of a keyspace to `read`, up to the first that cannot be read.
    fn scan(
        &mut self,
        keyspace: Keyspace,
        mut read: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), RecordError>,
    ) -> Result<(), RecoveryError> {
        let store = self.store;
        let mut failed = None;
        let scanned =
            store.scan(keyspace, &[], &[], &mut |key, value| match read(self, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(cause) => {
                    let tenant = keys::tenant_of(key).map(Box::from);
                    failed = Some(RecoveryError {
                        tenant,
                        keyspace,
                        cause: RecoveryCause::Record(cause),
                    });
                    ControlFlow::Break(())
                }
            });
        let failed_to_scan =
            |cause| RecoveryError { tenant: None, keyspace, cause: RecoveryCause::Store(cause) };
        scanned.map_err(failed_to_scan)?;
        failed.map_or(Ok(()), Err)
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            RecoveryCause::Store(cause) => {
                write!(f, "cannot read the stored {}: {cause}", what(self.keyspace))
            }
            RecoveryCause::Record(cause) => {
                write!(f, "cannot read one of the stored {}", what(self.keyspace))?;
                if let Some(tenant) = &self.tenant {
                    write!(f, " of tenant {tenant:?}")?;
                }
                write!(f, ": {cause}. ")?;
                f.write_str(match cause {
                    RecordError::Newer { .. } => {
                        "Start the version that wrote it, or restore a backup of this version"
                    }
                    RecordError::Malformed(_) => {
                        "Restore a backup, or see what else is wrong with `barid doctor`"
                    }
                })
            }
        }
    }
}

/// The contents of a keyspace, in words.
fn what(keyspace: Keyspace) -> &'static str {
    match keyspace {
        keys::RECEIVED => "packet identifiers received",
        keys::RETAINED => "retained messages",
        keys::STATE => "keys of the state store",
        keys::STATE_CLOCKS => "clocks of the state store",
        keys::STATE_ANSWERS => "answers of the state store",
        keys::QUEUE_ENTRIES => "messages in queues",
        keys::QUEUE_BODIES => "bodies of messages",
        keys::QUEUE_SESSIONS => "states of message sessions",
        keys::QUEUE_SEEN => "message ids",
        keys::QUEUE_NUMBERS => "reserved sequence numbers",
        keys::SHARD => "numbers of the shard",
        keys::MANAGED => "users, settings of tenants, bans and tokens",
        other => NAMES[usize::from(other.0)],
    }
}

impl std::error::Error for RecoveryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            RecoveryCause::Record(cause) => Some(cause),
            RecoveryCause::Store(cause) => Some(cause),
        }
    }
}
