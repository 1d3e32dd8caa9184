//! Listeners, IO threads, protocol adapters: everything of Barid that touches the outside.
//!
//! The way of a message: `event_loop` reads → `connection` finds the packets → `run` holds those of
//! one topic together → `router` asks the topic index who gets them → `session` writes, appends or
//! queues.

pub mod descriptors;
pub mod durability;
pub mod entities;
pub mod key_rules;
pub mod limits;
pub mod names;
pub mod password;
pub mod settings;
pub mod strangers;
pub mod transport;

mod access;
mod account;
mod admin;
mod agenda;
mod amqp;
mod amqp_clients;
mod auth;
mod bindings;
mod broker;
mod budget;
mod clock;
mod connection;
mod denials;
mod denied_action;
mod denying;
mod departures;
mod drops;
mod durable;
mod encode;
mod engine;
mod event_loop;
mod exposition;
mod housekeeping;
mod ids;
mod lanes;
mod lifecycle;
mod listener;
mod metrics;
mod offer;
mod owner;
mod packets;
mod progress;
mod queued;
mod rate_limit;
mod recovery;
mod retained;
mod router;
mod run;
mod session;
mod sessions;
mod shared;
mod sockets;
mod state_requests;
mod state_store;
mod sys;
mod system_time;
mod tenant;
mod threads;
mod turn;
mod verifier;
mod watchdog;
mod wire;
mod worker;

pub use broker::{Broker, ReloadReport, StartError};
