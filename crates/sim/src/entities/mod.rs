//! Random histories of entities with message sessions.
//!
//! Clients send messages to sessions, take sessions, settle what they get, and note with each session how far
//! they have come. One entity has no sessions. Connections break, locks end, disks fail, and the broker's process ends at any moment. In
//! the end nothing fails any more, and whoever comes takes all that is left: then nothing that was accepted
//! may be missing, and nothing that was settled may have come back.
//!
//! | module | what is there |
//! | --- | --- |
//! | `broker` | the engine, and what it has in entities |
//! | `peer` | packets as AMQP frames, and frames as packets |
//! | `client` | who sends and receives |
//! | `promises` | what is checked |
//! | `locks`, `streams`, `states` | … of locks, of the order of messages, of the states of sessions |
//! | `story` | what happens next |

mod broker;
mod client;
mod locks;
mod peer;
mod promises;
mod states;
mod story;
mod streams;

pub use story::Entities;
