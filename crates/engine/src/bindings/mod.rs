//! Bindings: what MQTT clients publish goes into queues and topics, and what queues have goes to MQTT clients, in
//! [`lanes`](crate::lanes).
//!
//! | file | what is there |
//! | --- | --- |
//! | `registry.rs` | the bindings of a tenant: configured, set, deleted, found by topic |
//! | `binding.rs`, `template.rs` | what a binding is declared as; texts with places in which something of a message is put |
//! | `bound.rs` | one of them, with what it has counted |
//! | `entering.rs` | from a run of MQTT messages into entities, before anybody else gets them |
//! | `incoming.rs` | a message of MQTT as one of AMQP |
//! | `outgoing.rs` | a message of AMQP as one of MQTT |

mod binding;
mod bound;
mod entering;
mod incoming;
mod outgoing;
mod registry;
mod template;

pub use binding::Binding;
pub use bound::{Bound, Passage};
pub use entering::{Refused, enter};
pub use outgoing::outgoing;
pub use registry::{Bindings, BindingsError, STORED_UNDER};
pub use template::Template;
