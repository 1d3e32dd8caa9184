//! MQTT clients: handling of their packets, and answers to them.
//!
//! A CONNECT is [admitted](admit()), and the connection is a [`Client`] from then on. The caller passes
//! received bytes in. Packets are sent through a [`Write`](std::io::Write) that never blocks: it accepts as
//! many bytes as there is room for.

mod admission;
mod announced;
mod client;
mod denied;
mod inquiries;
mod metering;
mod opening;
mod publish;
mod requests;
mod revoking;
mod subscribe;
mod wanted;

use std::io::ErrorKind;

use mqtt_proto::{DecodeError, ReasonCode};
use thiserror::Error;

use crate::owner::Farewell;

pub use admission::{Arrival, admit, refuse, say_refusal};
pub use client::{AuthReceived, Client, encode_auth};
pub use wanted::{Enhanced, Refusal, assigned_client_id};

/// Why a connection ends.
#[derive(Clone, Debug, Error)]
pub enum End {
    /// The client has sent DISCONNECT.
    #[error("the client disconnected")]
    Disconnected {
        /// Whether the Will Message is to be published.
        with_will: bool,
    },
    /// The client, or the network, closed the connection.
    #[error("connection lost: {0}")]
    Lost(ErrorKind),
    /// The client sent bytes that are not MQTT, or not allowed.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The client did something that the protocol or the broker does not allow.
    #[error("{1}")]
    Refused(ReasonCode, &'static str),
    /// Another connection has taken the session over, or the session has ended. The thread that did so has
    /// posted the reason, and whether the client can be told.
    #[error("the session was taken over, or has ended")]
    SessionTaken,
    /// The broker closes the connection.
    #[error("{}", .reason.name())]
    Closed {
        /// The reason that the client is told.
        reason: ReasonCode,
        /// How the client is told.
        farewell: Farewell,
    },
}
