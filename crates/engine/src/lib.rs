//! The engine of the broker: sessions, routing, queues and keys, and when clients are told of changes.
//!
//! The engine opens no socket and does not ask the operating system for the time. Its callers pass in the
//! received packets and the time, and it writes to the outputs that they provide. Threads that live as long
//! as the broker are started elsewhere.

pub mod access;
pub mod account;
pub mod agenda;
pub mod amqp;
pub mod amqp_clients;
mod arriving;
pub mod bindings;
pub mod budget;
pub mod clock;
pub mod closing;
pub mod cluster;
pub mod context;
pub mod denials;
pub mod denied_action;
mod denying;
pub mod departures;
pub mod drops;
pub mod durability;
pub mod durable;
mod encode;
pub mod engine;
pub mod entities;
pub mod faults;
pub mod housekeeping;
pub mod ids;
pub mod key_rules;
pub mod lanes;
mod lifecycle;
pub mod limit_ranges;
pub mod limits;
pub mod managed;
pub mod metrics;
pub mod mqtt;
pub mod names;
pub mod observing;
mod offer;
pub mod opening;
pub mod owner;
mod packets;
mod progress;
mod publishing;
mod queued;
mod quotas;
pub mod random;
pub mod recovery;
pub mod retained;
pub mod retaining;
pub mod rights;
mod rounds;
pub mod router;
mod run;
pub mod session;
mod sessions;
mod state_requests;
mod state_store;
mod sync;
mod sys;
mod targets;
pub mod tenant;
pub mod turn;
pub mod user_limits;
pub mod wire;
pub mod worker;
