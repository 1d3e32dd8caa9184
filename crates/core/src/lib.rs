//! The pure core of Barid: messages, topic index, sessions, retained messages, state store, queues
//! and subscriptions with message sessions.
//!
//! Nothing in this crate uses a socket, a clock, a thread or a random number. Time is an argument
//! ([`time::MonoTime`]), and the actions to be taken are return values. Therefore property tests
//! and a simulation can run this crate through any history.

pub mod commits;
pub mod drop_reason;
pub mod durable;
pub mod entity;
pub mod holder;
pub mod ids;
pub mod message;
pub mod queue;
pub mod retained;
pub mod rules;
pub mod session;
pub mod stamp;
pub mod state_store;
pub mod time;
pub mod topic_index;
pub mod value;
