//! What clients and the simulated broker say to each other.

pub mod entities;
pub mod messages;
pub mod state_store;
