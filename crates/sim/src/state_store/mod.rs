//! Random histories of the state store.
//!
//! Clients with clocks of their own set, read, lock and delete a few keys. Their sessions survive broken
//! connections, and they send unacknowledged requests again. The broker's process ends at any moment, disks
//! fail, and keys expire. At the end the history of each stored key must be
//! [linearizable](crate::linearizability), with all responses and notifications that clients got, and no
//! version may have been given twice.
//!
//! | module | contents |
//! | --- | --- |
//! | `broker` | the engine, and the content of its keys |
//! | `codec` | packets as bytes |
//! | `client` | a client's half of MQTT |
//! | `key` | the sequential specification of one key |
//! | `promises` | the checks |
//! | `story` | the choice of the next event |

mod broker;
pub mod client;
pub mod codec;
mod key;
pub mod promises;
mod story;

pub use story::StateStore;
