//! Numbers that identify stored objects.

use std::num::NonZeroU64;

/// Length limit, in bytes, for a client identifier, topic, topic filter, key of the state store, path, session id or
/// message id. A text of this length fits into a key of a store beside the longest tenant name: storage engines take
/// keys of 65,535 bytes. MQTT would allow a few hundred bytes more.
pub const TEXT_LEN_MAX: usize = 65_000;

/// A Packet Identifier (MQTT 5 §2.2.1): 1 to 65,535.
pub type PacketId = u16;

/// Identifies a stored message within its shard. Assigned in ascending order.
pub type MessageId = u64;

/// Identifies a stored session within the data directory; the upper 16 bits are its [`ShardIndex`]. A client that
/// begins a new session gets a new number, so nothing of the old session is mistaken for part of the new one.
pub type SessionNumber = u64;

/// Identifies the queue of a stored entity within the data directory, as [`SessionNumber`] identifies a session; the
/// two share one counter. An entity that is deleted and created again gets a new number. The queue's shard may differ
/// from the shard that assigned the number: a subscription of an earlier version was moved.
pub type QueueNumber = u64;

/// Identifies an entry in the queue of its session; ascending in the order of the queue. Never 0.
pub type EntryNumber = u64;

/// Index of a shard of the data directory, from 0.
pub type ShardIndex = u16;

/// Stands for a tenant's name during the life of the process. Never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNumber(pub u32);

/// The records under which a delivery is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredAs {
    /// Its entry in the queue of its session.
    pub entry: NonZeroU64,
    /// Its message.
    pub message: MessageId,
}
