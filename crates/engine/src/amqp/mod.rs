//! AMQP 1.0: clients of Service Bus, and others, connect here to queues, topics and subscriptions.
//!
//! | file | what is there |
//! | --- | --- |
//! | `container.rs` | what clients and entities say to each other over one connection |
//! | `keys.rs`, `access.rs`, `sas.rs` | keys; which ones a client has proved to have, and what they are for |
//! | `denied.rs` | what clients were not allowed to do |
//! | `attach.rs`, `link.rs` | links that clients ask for; what each is for |
//! | `sending.rs` | messages from clients |
//! | `receiving.rs`, `encode.rs` | messages to clients |
//! | `settling.rs` | what clients decide about them |
//! | `management/` | `$management` and `$cbs`: requests and their responses |
//! | `held.rs`, `inbox.rs` | answers that wait for the disk; what other threads say |
//! | `loading.rs` | messages that are read back |
//! | `refusals.rs` | refusals of entities as errors of AMQP |
//!
//! The protocol itself is in the crate `barid-amqp`, the rules of queues and sessions in
//! `barid_core::entity`; here they meet.

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
mod management;
mod receiving;
mod refusals;
mod sas;
mod sending;
mod settling;

pub use container::Container;
pub use inbox::Inbox;
pub use keys::{Key, Keys, Right, Secret};
