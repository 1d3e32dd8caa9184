//! Network connections: they read bytes, pass them to the engine, and write the engine's output.
//!
//! A connection belongs to one IO thread.

mod amqp;
mod enhanced;
mod login;
mod mqtt;

pub use amqp::AmqpConnection;
pub use mqtt::Connection;
