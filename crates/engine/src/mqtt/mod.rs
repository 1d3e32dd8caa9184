//! MQTT clients: what they send, and what they are told.
//!
//! A client [is admitted](admit()) with its CONNECT, and is a [`Client`] from then on. Bytes come in, and leave through a
//! [`Write`](std::io::Write) that never waits: it takes as many of them as there is room for now.

mod admission;
mod client;
mod denied;
mod opening;
mod publish;
mod requests;
mod subscribe;
mod wanted;

use std::io::ErrorKind;

use mqtt_proto::{DecodeError, ReasonCode};
use thiserror::Error;

use crate::owner::Farewell;

pub use admission::{Arrival, admit, refuse, say_refusal};
pub use client::Client;
pub use wanted::{Refusal, assigned_client_id};

/// Why a connection ends.
#[derive(Clone, Debug, Error)]
pub enum End {
    /// The client has said DISCONNECT.
    #[error("the client disconnected")]
    Disconnected {
        /// It asked for its will to be published.
        with_will: bool,
    },
    /// The client, or the network, closed the connection.
    #[error("connection lost: {0}")]
    Lost(ErrorKind),
    /// The client sent bytes that are not MQTT, or not allowed.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The client did what the protocol or the broker does not allow.
    #[error("{1}")]
    Refused(ReasonCode, &'static str),
    /// The session is another connection's by now, or has ended. Whoever took it has posted why, and whether
    /// the client can be told.
    #[error("the session has been taken")]
    SessionTaken,
    /// The broker wants it.
    #[error("{}", .reason.name())]
    Closed {
        /// The reason that the client is told.
        reason: ReasonCode,
        /// How it is told.
        farewell: Farewell,
    },
}
