//! Packets that clients and the simulated broker exchange.

pub mod entities;
pub mod messages;
pub mod state_store;
