//! Listeners, IO threads, protocol adapters: everything of Barid that touches the outside.
//!
//! The way of a message: [`event_loop`] reads → `connection` finds the packets → [`run`] holds those of
//! one topic together → [`router`] asks the topic index who gets them → [`session`] writes, appends or
//! queues.

pub mod auth;
pub mod budget;
pub mod descriptors;
pub mod durability;
pub mod durable;
pub mod entities;
pub mod event_loop;
pub mod ids;
pub mod key_rules;
pub mod limits;
pub mod metrics;
pub mod names;
pub mod offer;
pub mod owner;
pub mod packets;
pub mod password;
pub mod progress;
pub mod router;
pub mod run;
pub mod session;
pub mod settings;
pub mod state_store;
pub mod strangers;
pub mod tenant;
pub mod transport;

mod admin;
mod amqp;
mod amqp_clients;
mod bindings;
mod broker;
mod clock;
mod connection;
mod denials;
mod denied_action;
mod denying;
mod departures;
mod drops;
mod encode;
mod exposition;
mod housekeeping;
mod lifecycle;
mod listener;
mod rate_limit;
mod recovery;
mod retained;
mod sessions;
mod shared;
mod sockets;
mod sys;
mod verifier;
mod worker;

pub use broker::{Broker, ReloadReport, StartError};
