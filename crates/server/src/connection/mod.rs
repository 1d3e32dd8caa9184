//! Network connections: bytes are read, handed to the client's end in the engine, and what it says is written.
//!
//! A connection belongs to one thread.

mod amqp;
mod login;
mod mqtt;

pub use amqp::AmqpConnection;
pub use mqtt::Connection;
