//! Shared parts of `barid queue` and `barid topic`.

mod answers;
mod change;
mod confirm;
mod list;
mod peek;
mod properties;
mod purge;
mod receive;
mod resubmit;
mod send;
mod sessions;
mod show;

pub use answers::Described;
pub use change::{Confirmed, With, delete, make, show, update};
pub use confirm::{Confirmation, confirm};
pub use list::{MORE, PAGE, Paging, limit, missing, not_answered, pages, print_list};
pub use peek::{Args as PeekArgs, run as peek};
pub use properties::{Given, QueueProperties, SubscriptionProperties, TopicProperties};
pub use purge::{Args as PurgeArgs, run as purge};
pub use receive::{Args as ReceiveArgs, run as receive};
pub use resubmit::{Args as ResubmitArgs, run as resubmit};
pub use send::{Args as SendArgs, run as send};
pub use sessions::{Args as SessionsArgs, run as sessions};

use crate::admin::Admin;

/// An entity, at a path of the admin address.
pub struct Entity {
    /// Description of the entity: `the queue orders`.
    pub name: String,
    /// Path of the entity.
    pub path: String,
    /// Command that changes the entity: `barid queue update orders`.
    pub update: String,
}

/// Flags that name an entity.
pub trait Named {
    /// Returns a client of the admin address, and the named entity.
    fn connect(&self) -> (Admin, Entity);

    /// Whether the broker's answer is printed unchanged.
    fn wants_json(&self) -> bool;
}
