//! Bindings from entities to MQTT: messages of queues and subscriptions are published to MQTT clients.
//!
//! | file | contents |
//! | --- | --- |
//! | `runner.rs` | the runner: drives all lanes, which receive from entities and publish |
//! | `lane.rs` | a lane: one receiver, of a queue without sessions or of one session after the other |
//!
//! Messages that a binding publishes enter no other binding, so none can go round in a loop.

mod lane;
mod runner;

pub use runner::{Lanes, Runner};
