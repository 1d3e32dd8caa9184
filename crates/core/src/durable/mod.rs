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

mod changes;
pub mod keys;
mod queue;
pub mod records;
pub mod recovery;
pub mod shard;
mod wire;
pub mod write_set;

pub use records::{
    EntityRecord, ReceivedRecord, RecordError, ReplayRecord, SessionRecord, SessionStateRecord,
    ShardRecord, SubscriptionRecord, WillRecord,
};
pub use recovery::{
    AnsweredIn, Homes, ReceivedIn, Recovered, Recovery, RecoveryError, Trace, recover,
};
pub use shard::{Shard, TenantNames, number_in_shard, shard_of};
pub use write_set::WriteSet;
