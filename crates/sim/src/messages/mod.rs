//! Random histories of messages.
//!
//! Clients publish and subscribe with all QoS, in sessions that last, end and expire. In the end all come back,
//! and what they have got is compared with what they were promised.
//!
//! | module | what is there |
//! | --- | --- |
//! | `broker` | the real sessions, topic index and shards, joined by the [rules](crate::rules) |
//! | `client` | a client's half of MQTT |
//! | `promises` | what is checked |
//! | `story` | what happens next |

mod broker;
mod client;
mod promises;
mod story;

pub use story::Messages;
