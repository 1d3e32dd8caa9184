//! AMQP 1.0: clients of Service Bus, and others, connect here to queues, topics and subscriptions.
//!
//! | file | contents |
//! | --- | --- |
//! | `container.rs` | the state of one connection, and the handling of its events |
//! | `keys.rs`, `access.rs`, `sas.rs` | keys, the rights that a client has, and tokens |
//! | `signed.rs` | requests outside of AMQP that are signed with a key |
//! | `login.rs` | logins with keys and as users; rights of users that change |
//! | `passing.rs` | clients whose tenant has its entities at another broker |
//! | `denied.rs` | denials, and the list of connections |
//! | `attach.rs`, `link.rs` | attachment of links, and their kinds |
//! | `sending.rs` | messages from clients |
//! | `receiving.rs`, `encode.rs` | messages to clients |
//! | `settling.rs` | settlement of received messages |
//! | `management/` | `$management` and `$cbs`: requests and their responses |
//! | `held.rs`, `inbox.rs` | answers that wait for the disk, and news from other threads |
//! | `loading.rs` | messages that are read back from the store |
//! | `refusals.rs` | refusals of entities as errors of AMQP |
//!
//! The protocol itself is in the crate `barid-amqp`, and the rules of queues and sessions are in
//! `barid_core::entity`. This module connects the two.

mod access;
mod attach;
mod container;
mod denied;
mod encode;
mod held;
mod inbox;
mod keys;
mod link;
mod loading;
mod login;
mod management;
mod metering;
mod passing;
mod receiving;
mod refusals;
mod sas;
mod sending;
mod settling;
mod signed;
mod tapped;
#[cfg(test)]
mod tests;

pub use container::Container;
pub use inbox::Inbox;
pub use keys::{Key, Keys, Right, Secret};
pub use login::{Decision, Login};
pub use passing::{Answered, Leaving};
pub use sas::InvalidToken;
pub use sending::incoming;
pub use signed::Signed;
