//! Queues, topics and subscriptions: everything of message sessions that is not the protocol.
//!
//! An [`Address`] names a [`Node`] among the [`Entities`] of a tenant. What comes to it is [sent](Node::send):
//! into a queue, or through a topic into its subscriptions, and on from what forwards. Receivers work on a
//! [`Queue`] ([`Queue::with`]) and are told by an [`Inbox`] what happens meanwhile. Locks, order, sessions and
//! all that is the core's.
//!
//! | file | what is there |
//! | --- | --- |
//! | `path.rs` | addresses and names |
//! | `definition.rs`, `rule.rs`, `iso8601.rs` | what entities are declared as |
//! | `configured.rs` | that as it is stored, and what follows from it |
//! | `registry.rs` | all entities of a tenant: found, made, changed, deleted |
//! | `queue.rs` | a queue or subscription: its lock, its timer, its receivers |
//! | `alarm.rs` | what is done later, by another thread |
//! | `effects.rs`, `receivers.rs` | what follows: notes for the shard, news for receivers |
//! | `sending.rs`, `topic.rs` | the way of a message into queues |
//! | `once.rs` | a message that each queue takes once |
//! | `properties.rs`, `value.rs` | what rules see of a message |
//! | `mover.rs`, `group.rs` | what lies in a queue and belongs elsewhere |
//! | `reading_back.rs` | bodies that are in the store only |
//! | `recovery.rs` | from the stores to entities |
//! | `placement.rs` | subscriptions that earlier versions have put into other shards than their topics |

mod alarm;
mod configured;
mod definition;
mod effects;
pub mod group;
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
pub use configured::{Configured, DeclaredBy, Definition};
pub use definition::{
    DefinitionError, Definitions, QueueDefinition, QueueProperties, RULES_MAX,
    SubscriptionDefinition, SubscriptionProperties, TopicDefinition, TopicProperties,
};
pub use effects::QueueEffects;
pub use iso8601::{IsoDuration, NoDuration};
pub use mover::Mover;
pub use once::Once;
pub use path::{
    Address, Kind, NAME_MAX, NameError, PATH_MAX, check_name, check_path, key, split_subscription,
    subscription_path,
};
pub use placement::place_subscriptions;
pub use properties::{MessageProperties, Work};
pub use queue::Queue;
pub use receivers::{Inbox, Told, new_receiver_id};
pub use recovery::Recovering;
pub use registry::{Entities, EntityError, Node};
pub use rule::{
    Correlation, Expression, FilterType, PropertyValue, RuleDefinition, RuleProperties, TypedValue,
};
pub use sending::{Batch, HOPS_MAX, Numbers, SendError};
pub use topic::Topic;
