//! Bindings between MQTT topics and entities: from MQTT topics into queues and topics of AMQP here, and from
//! queues and subscriptions to MQTT topics with [`lanes`](crate::lanes).
//!
//! | file | contents |
//! | --- | --- |
//! | `registry.rs` | the bindings of a tenant: configures, sets, deletes them, and finds them by topic |
//! | `binding.rs`, `template.rs` | the declaration of a binding; texts with placeholders for parts of a message |
//! | `bound.rs` | a binding in force, with its counters |
//! | `entering.rs` | sends a run of MQTT messages to entities, before any session gets the messages |
//! | `incoming.rs` | converts an MQTT message to AMQP |
//! | `outgoing.rs` | converts an AMQP message to MQTT |

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
