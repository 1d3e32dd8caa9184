//! Keyspaces, and the keys in each.
//!
//! Every key begins with the tenant, so that a scan of one tenant never reaches another, followed by the version of the
//! key format. Numbers are big-endian, so that keys sort in the order of their numbers.

use barid_store::Keyspace;

use super::records::RecordError;
use super::wire::{Reader, utf8};
use crate::ids::{EntryNumber, MessageId, PacketId, SessionNumber};

pub use managed::{MANAGED_NAME_MAX, ManagedKey, ManagedKind};
pub use queue::{
    EntityKey, QueueBodyKey, QueueEntryKey, QueueNumbersKey, QueueSeenKey, QueueSessionKey,
    encode_queue_prefix,
};

mod managed;
mod queue;

/// [`SessionKey`] → [`SessionRecord`](super::SessionRecord).
pub const SESSIONS: Keyspace = Keyspace(0);
/// [`SubscriptionKey`] → [`SubscriptionRecord`](super::SubscriptionRecord).
pub const SUBSCRIPTIONS: Keyspace = Keyspace(1);
/// [`EntryKey`] → [`EntryRecord`](crate::session::EntryRecord).
pub const ENTRIES: Keyspace = Keyspace(2);
/// [`MessageKey`] → [`Message`](crate::message::Message).
pub const MESSAGES: Keyspace = Keyspace(3);
/// [`ReceivedKey`] → [`ReceivedRecord`](super::ReceivedRecord): QoS 2 messages received and not yet released.
pub const RECEIVED: Keyspace = Keyspace(4);
/// [`RetainedKey`] → [`Message`](crate::message::Message).
pub const RETAINED: Keyspace = Keyspace(5);

/// [`StateKey`] → [`StateRecord`](crate::state_store::StateRecord).
pub const STATE: Keyspace = Keyspace(6);
/// [`StateClockKey`] → [`Version`](statestore_proto::Version): the last version that the shard knows of.
pub const STATE_CLOCKS: Keyspace = Keyspace(7);
/// [`AnsweredKey`] → [`AnsweredRecord`](crate::state_store::AnsweredRecord).
pub const STATE_ANSWERS: Keyspace = Keyspace(8);

/// [`EntityKey`] → [`EntityRecord`](super::EntityRecord).
pub const ENTITIES: Keyspace = Keyspace(9);
/// [`QueueEntryKey`] → [`Entry`](crate::entity::Entry), without the bytes of its body.
pub const QUEUE_ENTRIES: Keyspace = Keyspace(10);
/// [`QueueBodyKey`] → the bytes of a message.
pub const QUEUE_BODIES: Keyspace = Keyspace(11);
/// [`QueueSessionKey`] → [`SessionStateRecord`](super::SessionStateRecord).
pub const QUEUE_SESSIONS: Keyspace = Keyspace(12);
/// [`QueueSeenKey`] → the time until which a message with this id is a duplicate.
pub const QUEUE_SEEN: Keyspace = Keyspace(13);
/// [`QueueNumbersKey`] → the sequence number below which numbers may have been assigned.
pub const QUEUE_NUMBERS: Keyspace = Keyspace(14);

/// [`ShardKey`] → [`ShardRecord`](super::ShardRecord): the shard itself.
pub const SHARD: Keyspace = Keyspace(15);

/// [`ManagedKey`] → [`ManagedRecord`](super::ManagedRecord).
pub const MANAGED: Keyspace = Keyspace(16);

/// The names of the keyspaces, in the order of their numbers. Numbers and names are part of the format: new ones are
/// added at the end, and none is reused for another purpose.
pub const NAMES: [&str; 17] = [
    "sessions",
    "subscriptions",
    "entries",
    "messages",
    "received",
    "retained",
    "state",
    "state_clocks",
    "state_answers",
    "entities",
    "queue_entries",
    "queue_bodies",
    "queue_sessions",
    "queue_seen",
    "queue_numbers",
    "shard",
    "managed",
];

/// Maximum length of a tenant's name, in bytes: its length is stored in one byte.
pub const TENANT_LEN_MAX: usize = 255;

/// Replaces `/` in topics, as in [`RetainedStore`](crate::retained::RetainedStore).
const SEPARATOR: u8 = 0;

/// The version of the key format that this version of Barid writes.
const VERSION: u8 = 1;

/// The key of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The client identifier.
    pub client_id: &'a str,
}

/// The key of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The session that has the subscription.
    pub session: SessionNumber,
    /// The topic filter; that of a shared subscription includes `$share/{ShareName}/`.
    pub filter: &'a str,
}

/// The key of an entry in a session's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The session that has the queue.
    pub session: SessionNumber,
    /// The number of the entry.
    pub entry: EntryNumber,
}

/// The key of a message that entries refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the message.
    pub message: MessageId,
}

/// The key of the note that a QoS 2 message has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The session of the publishing client. It may belong to another shard.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
}

/// The key of a retained message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainedKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The topic.
    pub topic: &'a str,
}

/// The key of a key of the state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The key as clients know it: any bytes, at least one.
    pub key: &'a [u8],
}

/// The key of the clock of a tenant's state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateClockKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
}

/// The key of the answer to a request to the state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The session of the requesting client. It may belong to another shard.
    pub session: SessionNumber,
    /// The packet identifier of the PUBLISH.
    pub packet_id: PacketId,
}

/// The key of a shard's own record. It belongs to no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardKey;

impl<'a> SessionKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(self.client_id.as_bytes());
    }

    /// Reads a key of [`SESSIONS`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        Ok(Self { tenant, client_id: utf8(key.rest())? })
    }
}

impl<'a> SubscriptionKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(&self.session.to_be_bytes());
        key.extend_from_slice(self.filter.as_bytes());
    }

    /// Reads a key of [`SUBSCRIPTIONS`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        Ok(Self { tenant, session: key.u64_be()?, filter: utf8(key.rest())? })
    }
}

impl<'a> EntryKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(&self.session.to_be_bytes());
        key.extend_from_slice(&self.entry.to_be_bytes());
    }

    /// Reads a key of [`ENTRIES`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        let read = Self { tenant, session: key.u64_be()?, entry: key.u64_be()? };
        key.finish()?;
        if read.entry == 0 {
            return Err(RecordError::Malformed("an entry has the number 0"));
        }
        Ok(read)
    }
}

impl<'a> MessageKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(&self.message.to_be_bytes());
    }

    /// Reads a key of [`MESSAGES`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        let read = Self { tenant, message: key.u64_be()? };
        key.finish().map(|()| read)
    }
}

impl<'a> ReceivedKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        put_inbound(self.session, self.packet_id, key);
    }

    /// Reads a key of [`RECEIVED`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, key) = tenant(key)?;
        let (session, packet_id) = inbound(key)?;
        Ok(Self { tenant, session, packet_id })
    }
}

impl<'a> RetainedKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend(as_stored(self.topic));
    }

    /// Reads a key of [`RETAINED`] whose record is a message to `topic`. The key contains the topic in another form, so
    /// the topic is compared and not read.
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, of a later version, or of another topic.
    pub fn decode(key: &'a [u8], topic: &'a str) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        if as_stored(topic).eq(key.rest().iter().copied()) {
            Ok(Self { tenant, topic })
        } else {
            Err(RecordError::Malformed("its key has another topic"))
        }
    }
}

impl<'a> StateKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(self.key);
    }

    /// Reads a key of [`STATE`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        match key.rest() {
            [] => Err(RecordError::Malformed("a key of the state store is empty")),
            key => Ok(Self { tenant, key }),
        }
    }
}

impl<'a> StateClockKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
    }

    /// Reads a key of [`STATE_CLOCKS`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, key) = tenant(key)?;
        key.finish().map(|()| Self { tenant })
    }
}

impl<'a> AnsweredKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        put_inbound(self.session, self.packet_id, key);
    }

    /// Reads a key of [`STATE_ANSWERS`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, key) = tenant(key)?;
        let (session, packet_id) = inbound(key)?;
        Ok(Self { tenant, session, packet_id })
    }
}

impl ShardKey {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(self, key: &mut Vec<u8>) {
        begin("", key);
    }

    /// Reads a key of [`SHARD`].
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &[u8]) -> Result<Self, RecordError> {
        match tenant(key)? {
            ("", key) => key.finish().map(|()| Self),
            _ => Err(RecordError::Malformed("a record of a shard has a tenant")),
        }
    }
}

/// Appends the session and packet identifier, which identify a PUBLISH received from a client.
fn put_inbound(session: SessionNumber, packet_id: PacketId, key: &mut Vec<u8>) {
    key.extend_from_slice(&session.to_be_bytes());
    key.extend_from_slice(&packet_id.to_be_bytes());
}

/// Reads the session and packet identifier of a PUBLISH, up to the end of the key.
fn inbound(mut key: Reader<'_>) -> Result<(SessionNumber, PacketId), RecordError> {
    let (session, packet_id) = (key.u64_be()?, key.u16_be()?);
    key.finish()?;
    if packet_id == 0 {
        return Err(RecordError::Malformed("a packet identifier is 0"));
    }
    Ok((session, packet_id))
}

fn as_stored(topic: &str) -> impl Iterator<Item = u8> {
    topic.bytes().map(|byte| if byte == b'/' { SEPARATOR } else { byte })
}

/// Writes the common prefix of all keys of a tenant to `key`, in place of its contents.
fn begin(tenant: &str, key: &mut Vec<u8>) {
    let len = u8::try_from(tenant.len()).expect("TenantNames takes no name above TENANT_LEN_MAX");
    key.clear();
    key.push(len);
    key.extend_from_slice(tenant.as_bytes());
    key.push(VERSION);
}

/// Returns the tenant of a key of any version.
pub fn tenant_of(key: &[u8]) -> Option<&str> {
    read_tenant(&mut Reader::new(key)).ok()
}

fn read_tenant<'a>(key: &mut Reader<'a>) -> Result<&'a str, RecordError> {
    let len = key.u8()?;
    utf8(key.take(usize::from(len))?)
}

/// Splits a key into its tenant and the part after the prefix.
fn tenant(key: &[u8]) -> Result<(&str, Reader<'_>), RecordError> {
    let mut key = Reader::new(key);
    let tenant = read_tenant(&mut key)?;
    match key.u8()? {
        VERSION => Ok((tenant, key)),
        version => Err(RecordError::version(version, VERSION)),
    }
}
