//! Random histories of messages.
//!
//! Clients publish and subscribe with all QoS, in sessions that last, end and expire. In the end all come back,
//! and what they have got is compared with what they were promised.
//!
//! | module | what is there |
//! | --- | --- |
//! | `bound` | queues that bindings fill |
//! | `broker` | the engine, and what the checkers know beside it |
//! | `codec` | packets as bytes |
//! | `picture` | what a broker stores |
//! | `client` | a client's half of MQTT |
//! | `promises` | what is checked |
//! | `story` | what happens next |

mod bound;
mod broker;
mod client;
mod codec;
mod picture;
mod promises;
mod story;

pub use story::Messages;
