//! What `barid queue` and `barid topic` have in common.

mod answers;
mod change;
mod confirm;
mod list;
mod peek;
mod properties;
mod purge;
mod sessions;
mod show;

pub use answers::Described;
pub use change::{Confirmed, With, delete, make, show, update};
pub use confirm::{Confirmation, confirm};
pub use list::{MORE, Paging, pages, print_list};
pub use peek::{Args as PeekArgs, run as peek};
pub use properties::{Given, QueueProperties, SubscriptionProperties, TopicProperties};
pub use purge::{Args as PurgeArgs, run as purge};
pub use sessions::{Args as SessionsArgs, run as sessions};

use crate::admin::Admin;

/// Something that messages are sent to or received from, at a path of the admin address.
pub struct Entity {
    /// What it is, in words: `the queue orders`.
    pub name: String,
    /// The path.
    pub path: String,
    /// The command that changes it: `barid queue update orders`.
    pub update: String,
}

/// Flags that name an entity.
pub trait Named {
    /// Who answers, and what is named.
    fn connect(&self) -> (Admin, Entity);

    /// Whether the broker's answer is printed as it is.
    fn wants_json(&self) -> bool;
}
