//! Network connections: they read bytes, pass them to the engine, and write the engine's output.
//!
//! A connection belongs to one IO thread.

mod amqp;
mod amqp_login;
mod enhanced;
mod login;
mod mqtt;
mod standing;
mod unnamed;

pub use amqp::AmqpConnection;
pub use mqtt::Connection;
pub use standing::Consequence;
