//! The client's side of the protocol of MySQL and MariaDB, as far as look-ups need it.
//!
//! It is our own because a server may be an enemy, or something that is no database at all. The clients that
//! exist in Rust end the process when a packet is shorter than it should be, and allocate what a packet
//! declares. Here each length and number of a server is checked, and each answer has a budget of bytes.
//!
//! There is no text protocol with values in it: values are always bound to a prepared statement. The client
//! does not offer `LOAD DATA LOCAL`, so no server can ask for a file, and not several statements in one.

pub(super) mod connection;
mod login;
mod packet;
mod statement;

pub(super) use connection::{Connection, Target};
pub(super) use statement::{Row, Value};

use std::io;

use thiserror::Error;

/// Reason for which a server could not be asked.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// The connection failed.
    #[error("{}", reason(_0))]
    Connection(#[from] io::Error),
    /// The server answers with an error.
    #[error("the server answers with error {code}: {message}")]
    Server {
        /// The number of the error.
        code: u16,
        /// The message, without control characters and shortened.
        message: Box<str>,
    },
    /// The server does not speak the protocol.
    #[error("this is no MySQL server, or the connection is disturbed: {0}")]
    Malformed(&'static str),
    /// An answer is longer than it may be.
    #[error("the answer is too large: {0}")]
    TooLarge(&'static str),
    /// Too many wait for a connection.
    #[error("too many wait for a connection")]
    Busy,
    /// The server wants something that this client does not do.
    #[error("{0}")]
    Refused(Box<str>),
}

impl Error {
    /// Whether the server has answered, so that it can be asked again over the same connection.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// Whether the server is to blame, and will do the same to others who ask. A row that is too large, for
    /// example, concerns one user.
    pub(super) fn concerns_all(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::Malformed(_))
    }
}

/// Describes an error of a connection without the address, which may be a secret.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server has closed the connection".into(),
        io::ErrorKind::TimedOut => "no answer in time".into(),
        _ => error.to_string(),
    }
}
