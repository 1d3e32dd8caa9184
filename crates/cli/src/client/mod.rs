//! A small blocking MQTT client over TCP, TLS and WebSocket, for the command line.

mod args;
mod connection;
mod failure;
mod properties;
mod stream;
mod tls;
mod url;

pub use args::{BrokerArgs, ConnectArgs, Protocol, Target, parse_qos, parse_version};
pub use connection::{Connection, Frame, Session};
pub use failure::{Failure, exit_code};
pub use stream::{Address, Layers};
