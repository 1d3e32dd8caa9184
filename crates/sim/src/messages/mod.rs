//! Random histories of MQTT messages.
//!
//! Clients publish and subscribe with all QoS, in sessions that last, end and expire. At the end all clients
//! come back, and what they received is compared with what they were promised.
//!
//! | module | contents |
//! | --- | --- |
//! | `bound` | queues that bindings fill |
//! | `broker` | the engine, and additional facts for the checkers |
//! | `codec` | packets as bytes |
//! | `picture` | the stored state of a broker |
//! | `client` | a client's half of MQTT |
//! | `promises` | the checks |
//! | `story` | the choice of the next event |

mod bound;
mod broker;
pub mod client;
pub mod codec;
mod picture;
mod promises;
mod story;

pub use story::Messages;
