//! Queues, topics and subscriptions: the part of message sessions that does not depend on a protocol.
//!
//! An [`Address`] names a [`Node`] among the [`Entities`] of a tenant. Messages are [sent](Node::send) to a node:
//! into a queue, or through a topic into its subscriptions, and onward from an entity that forwards. Receivers work
//! on a [`Queue`] through [`Queue::with`]; an [`Inbox`] tells them of later events. Locks, order and message
//! sessions are implemented by the core's `Entity`.
//!
//! | file | contents |
//! | --- | --- |
//! | `path.rs` | addresses and names |
//! | `definition.rs`, `rule.rs`, `iso8601.rs` | definitions of entities and rules |
//! | `configured.rs` | definitions as they are stored, and what is derived from them |
//! | `registry.rs` | all entities of a tenant: lookup, creation, change and deletion |
//! | `queue.rs` | a queue or subscription: its lock, its timer, its receivers |
//! | `idleness.rs` | for how long nobody has used an entity |
//! | `holding.rs` | the bytes of all entities of a tenant together |
//! | `alarm.rs` | work that another thread does later |
//! | `effects.rs`, `receivers.rs` | consequences of a command: notes for the shard, notifications of receivers |
//! | `sending.rs`, `topic.rs` | the path of a message into queues |
//! | `once.rs` | a message that each queue takes once |
//! | `properties.rs`, `value.rs` | the properties of a message that rules see |
//! | `mover.rs`, `group.rs` | moving of stored messages to another entity |
//! | `reading_back.rs` | reading of bodies that are in the store only |
//! | `recovery.rs` | recovery of entities from the stores |
//! | `placement.rs` | subscriptions that earlier versions stored in another shard than their topic |

mod alarm;
mod configured;
mod definition;
mod effects;
pub mod group;
mod holding;
mod idleness;
mod iso8601;
mod mover;
mod once;
mod path;
mod placement;
mod properties;
mod queue;
mod reading_back;
mod receivers;
mod recovery;
mod registry;
mod rule;
mod sending;
#[cfg(test)]
mod tests;
mod topic;
pub mod value;

pub use alarm::Alarm;
pub use configured::{Configured, DeclaredBy, Definition, Times};
pub use definition::{
    DefinitionError, Definitions, QueueDefinition, QueueProperties, RULES_MAX, Status,
    SubscriptionDefinition, SubscriptionProperties, TopicDefinition, TopicProperties,
};
pub use effects::QueueEffects;
pub use holding::AdmitsBytes;
pub use iso8601::{IsoDuration, NoDuration};
pub use mover::Mover;
pub use once::Once;
pub(crate) use path::entity_of;
pub use path::{
    Address, Kind, NAME_MAX, NameError, PATH_MAX, check_name, check_path, key, split_subscription,
    subscription_path, without_authority,
};
pub use placement::place_subscriptions;
pub use properties::{MessageProperties, Work};
pub use queue::Queue;
pub use receivers::{Inbox, Told, new_receiver_id};
pub use recovery::{Recovering, shard_of_path};
pub use registry::{Admits, Entities, EntityError, Node};
pub use rule::{
    Correlation, Expression, FilterType, PropertyValue, RuleDefinition, RuleProperties, TypedValue,
};
pub use sending::{Batch, HOPS_MAX, Numbers, SendError};
pub use topic::Topic;
