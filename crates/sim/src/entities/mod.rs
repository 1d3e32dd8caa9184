//! Random histories of entities, with and without message sessions.
//!
//! Clients send messages to sessions, lock sessions, settle messages, and record their progress in the state of
//! the session. Two entities have no sessions. Connections break, locks expire, disks fail, and the broker's
//! process ends at any moment. At the end nothing fails any more, and clients receive all that is left. Then no
//! accepted message may be missing, and no settled message may have come back.
//!
//! | module | contents |
//! | --- | --- |
//! | `broker` | the engine, and the content of its entities |
//! | `peer` | packets as AMQP frames, and frames as packets |
//! | `client` | senders and receivers |
//! | `promises` | the checks |
//! | `locks`, `streams`, `states` | the checks of locks, of the order of messages, and of the states of sessions |
//! | `story` | the choice of the next event |

mod broker;
mod client;
mod locks;
mod peer;
mod promises;
mod states;
mod story;
mod streams;

pub use story::Entities;
