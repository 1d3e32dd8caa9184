//! Bindings from entities to MQTT: what queues and subscriptions have goes to MQTT clients.
//!
//! | file | what is there |
//! | --- | --- |
//! | `runner.rs` | who receives from entities and publishes |
//! | `lane.rs` | one receiver of it: a queue, or one session after the other |
//!
//! What a binding publishes enters no binding, so nothing goes round in circles.

mod lane;
mod runner;

pub use runner::{Lanes, Runner};
