//! Listeners, IO threads and protocol adapters: the part of Barid that uses sockets, threads and clocks.
//!
//! The path of a message: a thread of `event_loop` gives a turn to a `connection`, which reads bytes; the
//! engine's `mqtt` module finds the packets in them; its `run` module groups consecutive messages to one
//! topic; its `router` looks up the subscribers in the topic index; its `session` module writes, appends or
//! queues the messages for each subscriber.

pub mod descriptors;
pub mod settings;
pub mod strangers;
pub mod transport;

mod admin;
mod broker;
mod cluster;
mod connection;
mod event_loop;
mod exposition;
mod framer;
mod listener;
mod logins;
mod message_traces;
mod peering;
mod process;
mod rate_limit;
mod remotes;
mod shards;
mod shared;
mod sockets;
mod system;
mod telemetry;
mod telemetry_counts;
mod tenant_labels;
mod threads;
mod turn;
mod watchdog;

pub use broker::{Broker, ReloadReport, StartError};
pub use cluster::CLOCK_SKEW;
