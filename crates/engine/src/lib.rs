//! What decides: sessions, routes, queues, keys, and who is told what when.
//!
//! Nothing here opens a socket, starts a thread, or asks the operating system for the time. It is called with packets that
//! have come, and with the time; it writes to what it is given. So the same code runs under a broker and under a
//! simulation.

pub mod access;
pub mod account;
pub mod agenda;
pub mod amqp_clients;
pub mod bindings;
pub mod budget;
pub mod clock;
pub mod denials;
pub mod denied_action;
pub mod denying;
pub mod departures;
pub mod drops;
pub mod durability;
pub mod durable;
pub mod encode;
pub mod engine;
pub mod entities;
pub mod housekeeping;
pub mod ids;
pub mod key_rules;
pub mod lanes;
pub mod lifecycle;
pub mod limits;
pub mod metrics;
pub mod names;
pub mod offer;
pub mod owner;
pub mod packets;
pub mod progress;
pub mod queued;
pub mod random;
pub mod recovery;
pub mod retained;
pub mod router;
pub mod run;
pub mod session;
pub mod sessions;
pub mod state_requests;
pub mod state_store;
pub mod sys;
pub mod tenant;
pub mod wire;
pub mod worker;
