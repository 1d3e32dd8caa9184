//! Random histories of the state store.
//!
//! Clients with clocks of their own set, read, lock and delete a few keys, in sessions that go on when
//! connections break; what is not acknowledged they send again. The broker's process ends at any moment,
//! disks fail, keys expire. In the end every key must have had a history that could be a sequential one
//! ([`linearizability`](crate::linearizability)), whatever was told to whom, and no version may have been
//! given twice.
//!
//! | module | what is there |
//! | --- | --- |
//! | `broker` | the engine, and what it has of keys |
//! | `codec` | packets as bytes |
//! | `client` | a client's half of MQTT |
//! | `key` | how one key works, one command after the other |
//! | `promises` | what is checked |
//! | `story` | what happens next |

mod broker;
mod client;
mod codec;
mod key;
mod promises;
mod story;

pub use story::StateStore;
