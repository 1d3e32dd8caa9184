//! The durable plane without its disk: which records of sessions, entities, retained messages and the state store must
//! survive, how they are written, and how they are read again.
//!
//! A data directory has one or more *shards*; every session, every entity, every retained topic and every key of the
//! state store belongs to one of them. Memory is authoritative: each change that must survive is noted in the
//! [`WriteSet`] of its [`Shard`]. The owner of the shard takes the set from time to time and commits it as one batch.
//! Changes noted between two takes are therefore durable together or not at all.
//!
//! | module | contents |
//! | --- | --- |
//! | [`keys`] | keyspaces, and the keys in each |
//! | [`records`] | the values, one file for each |
//! | [`write_set`] | the changes that a shard has to write |
//! | [`shard`] | a write set, the assignment of numbers, and the reference count of each message |
//! | `queue` | changes of entities and their queues |
//! | `managed` | changes of managed objects: users, tenants, bans, tokens |
//! | [`recovery`] | reading a store back into a shard, and passing its records to their owners |
//!
//! `docs/formats/records.md` specifies the bytes.

mod changes;
pub mod keys;
mod managed;
mod queue;
pub mod records;
pub mod recovery;
pub mod shard;
mod wire;
pub mod write_set;

pub use records::{
    EntityRecord, ManagedRecord, ReceivedRecord, RecordError, ReplayRecord, RetainedRecord,
    SessionRecord, SessionStateRecord, ShardRecord, SubscriptionRecord, WillRecord,
};
pub use recovery::{
    AnsweredIn, Homes, ReceivedIn, Recovered, Recovery, RecoveryError, Trace, recover,
};
pub use shard::{Shard, TenantNames, number_in_shard, shard_of};
pub use write_set::WriteSet;
