//! Numbers that name what is stored.

use std::num::NonZeroU64;

/// The longest client identifier, topic, topic filter, key of the state store, path, session id or message
/// id that fits into a key of a store beside the longest tenant, in bytes: engines take keys of 65,535 bytes. MQTT
/// would allow a few hundred more.
pub const TEXT_LEN_MAX: usize = 65_000;

/// A Packet Identifier (MQTT 5 §2.2.1): 1 to 65,535.
pub type PacketId = u16;

/// Names a stored message within its shard. Given in ascending order.
pub type MessageId = u64;

/// Names a stored session within the data directory; the upper 16 bits are its [`ShardIndex`]. A
/// client that begins a new session gets a new number, so nothing of the old one can be mistaken.
pub type SessionNumber = u64;

/// Names the queue of a stored entity within the data directory, as [`SessionNumber`] names a session;
/// the two have one counter. An entity that is made anew gets a new number. Its shard may be another one than that which
/// has given the number: a subscription of an earlier version was moved.
pub type QueueNumber = u64;

/// Names an entry in the queue of its session, in the order of the queue. Never 0.
pub type EntryNumber = u64;

/// Which shard of the data directory, from 0.
pub type ShardIndex = u16;

/// Stands for a tenant's name in the life of the process. Never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNumber(pub u32);

/// Where a delivery is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredAs {
    /// Its entry in the queue of its session.
    pub entry: NonZeroU64,
    /// Its message.
    pub message: MessageId,
}
