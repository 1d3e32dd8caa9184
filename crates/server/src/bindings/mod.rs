//! Bindings: what MQTT clients publish goes into queues and topics, and what queues have to MQTT clients.
//!
//! | file | what is there |
//! | --- | --- |
//! | `registry.rs` | the bindings of a tenant: configured, set, deleted, found by topic |
//! | `bound.rs` | one of them, with what it has counted |
//! | `entering.rs` | from a run of MQTT messages into entities, before anybody else gets them |
//! | `incoming.rs` | a message of MQTT as one of AMQP |
//! | `bridge.rs` | the thread that receives from entities and publishes |
//! | `lane.rs` | one receiver of it: a queue, or one session after the other |
//! | `outgoing.rs` | a message of AMQP as one of MQTT |
//!
//! What a binding publishes enters no binding, so nothing goes round in circles.

mod bound;
mod bridge;
mod entering;
mod incoming;
mod lane;
mod outgoing;
mod registry;

pub use bound::Bound;
pub use bridge::Bridge;
pub use entering::{Entered, enter};
pub use registry::{Bindings, BindingsError, STORED_UNDER, configure};
