//! The server's side of AMQP 1.0, without IO.

pub mod message;
