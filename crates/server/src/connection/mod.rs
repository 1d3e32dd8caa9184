//! Network connections: they read bytes, pass them to the engine, and write the engine's output.
//!
//! A connection belongs to one IO thread.

mod amqp;
mod amqp_login;
mod enhanced;
mod login;
mod member;
mod mqtt;
mod relayed;
mod standing;
mod unnamed;

pub use amqp::AmqpConnection;
pub use member::{Lost, MemberConnection};
pub use mqtt::Connection;
pub use relayed::{Leaves, RelayedConnection, Speaks};
pub use standing::Consequence;
