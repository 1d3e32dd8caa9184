//! What decides: sessions, routes, queues, keys, and who is told what when.
//!
//! Nothing here opens a socket or asks the operating system for the time. It is called with packets that have come, and
//! with the time; it writes to what it is given. Threads that live as long as the broker are started by others.

pub mod access;
pub mod account;
pub mod agenda;
pub mod amqp;
pub mod amqp_clients;
pub mod bindings;
pub mod budget;
pub mod clock;
pub mod closing;
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
pub mod lifecycle;
pub mod limits;
pub mod metrics;
pub mod mqtt;
pub mod names;
mod offer;
pub mod opening;
pub mod owner;
mod packets;
pub mod progress;
mod queued;
pub mod random;
pub mod recovery;
mod retained;
pub mod rounds;
pub mod router;
pub mod run;
pub mod session;
mod sessions;
pub mod state_requests;
pub mod state_store;
mod sync;
mod sys;
pub mod tenant;
pub mod turn;
pub mod wire;
pub mod worker;
