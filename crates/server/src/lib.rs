//! Listeners, IO threads, protocol adapters: everything of Barid that touches the outside.
//!
//! The way of a message: `event_loop` has `connection` read → the engine's `mqtt` finds the packets → its `run` holds those of one
//! topic together → its `router` asks the topic index who gets them → its `session` writes, appends or queues.

pub mod descriptors;
pub mod password;
pub mod settings;
pub mod strangers;
pub mod transport;

mod admin;
mod auth;
mod broker;
mod connection;
mod event_loop;
mod exposition;
mod listener;
mod rate_limit;
mod shards;
mod shared;
mod sockets;
mod system;
mod threads;
mod turn;
mod verifier;
mod watchdog;

pub use broker::{Broker, ReloadReport, StartError};
