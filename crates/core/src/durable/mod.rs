//! The durable plane without its disk: what of a session, an entity, the retained messages and the state
//! store has to survive, how it is written, and how it is read again.
//!
//! A data directory has some *shards*, and every session, every entity, every retained topic and every
//! key of the state store belongs to one.
//! What is in memory leads: each change that must survive is noted in the [`WriteSet`] of its
//! [`Shard`], and whoever owns the shard takes the set from time to time and commits it as one batch.
//! What is noted between two takes is therefore durable together or not at all.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`keys`] | keyspaces, and the keys in each |
//! | [`records`] | the values, one file for each |
//! | [`write_set`] | what a shard has to write |
//! | [`shard`] | a write set, numbers to give, and how often each message is referred to |
//! | `queue` | what the write set gets of entities and their queues |
//! | [`recovery`] | from a store to a shard, and to whoever holds the sessions |
//!
//! `docs/formats/records.md` has the bytes.

use std::num::NonZeroU64;

use crate::session::PacketId;

mod changes;
mod commits;
pub mod keys;
mod queue;
pub mod records;
pub mod recovery;
pub mod shard;
mod wire;
pub mod write_set;

pub use commits::Commits;
pub use records::{
    AnsweredRecord, EntityRecord, EntryRecord, RecordError, ReplayRecord, SessionRecord,
    SessionStateRecord, StateRecord, SubscriptionRecord, WillRecord,
};
pub use recovery::{
    AnsweredIn, ReceivedIn, Recovered, Recovery, RecoveryError, Trace, recover, settle,
};
pub use shard::{Shard, TenantNames, shard_of};
pub use write_set::WriteSet;

/// Names a stored message within its shard. Given in ascending order.
pub type MessageId = u64;

/// Names a stored session within the data directory; the upper 16 bits are its [`ShardIndex`]. A
/// client that begins a new session gets a new number, so nothing of the old one can be mistaken.
pub type SessionNumber = u64;

/// Names the queue of a stored entity within the data directory, as [`SessionNumber`] names a session;
/// the two have one counter. An entity that is made anew gets a new number.
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

/// How far the client has got with an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It has no packet identifier.
    #[default]
    Waiting,
    /// Sent as PUBLISH with this packet identifier; PUBACK or PUBREC has not come.
    Sent(PacketId),
    /// PUBREC has come, PUBCOMP has not. The client has the message, so it is no longer stored.
    Released(PacketId),
}
