//! What a tenant uses at one broker of what its limits allow at all of them together.

use crate::error::FrameError;
use crate::wire::{Reader, put_u64};

/// Number of rates that a tenant may have.
pub const RATES: usize = 4;

/// What a tenant uses at one broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Connections.
    pub connections: u64,
    /// Sessions.
    pub sessions: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Messages that wait in the queues of sessions.
    pub queued_messages: u64,
    /// Bytes of these, and of messages in flight.
    pub queued_bytes: u64,
    /// Sums of what the clients of the broker have used of each rate, less what they have given back: messages from clients,
    /// bytes from clients, bytes to clients, and connections. They begin at 0 when the broker creates the tenant.
    pub spent: [u64; RATES],
}

impl Used {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { connections, sessions, subscriptions, queued_messages, queued_bytes, spent } =
            *self;
        for count in [connections, sessions, subscriptions, queued_messages, queued_bytes] {
            put_u64(out, count);
        }
        for count in spent {
            put_u64(out, count);
        }
    }

    pub(crate) fn decode(fields: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            connections: fields.u64()?,
            sessions: fields.u64()?,
            subscriptions: fields.u64()?,
            queued_messages: fields.u64()?,
            queued_bytes: fields.u64()?,
            spent: [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?],
        })
    }
}
