//! The thread that owns a connection, as other threads see it.

use std::fmt;
use std::sync::Arc;

use mqtt_proto::ReasonCode;

use crate::ids::ConnectionId;

/// Requests of other threads to the thread that owns a connection. Each returns at once, whatever locks the
/// caller holds.
pub trait Owner: Send + Sync + fmt::Debug {
    /// Asks the owner to check the connection: packets wait for the client, or an event that its session
    /// waits for may have happened.
    fn drain(&self, connection: ConnectionId);

    /// Asks the owner to close the connection.
    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell);

    /// Counts messages that the session has not got while it was [muted](crate::session::Session::mute).
    fn missed(&self, _count: usize) {}
}

/// The way in which a client gets a DISCONNECT with the reason why its connection is closed. The DISCONNECT
/// must not follow a packet that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The client gets no DISCONNECT.
    Silent,
    /// Through the session, behind the packets that already wait, if the connection still has the session.
    InTurn,
    /// Directly to the socket: the session was taken from the connection between two packets.
    AtOnce,
}

/// Returns whether both owners are the same thread.
pub fn is_same(one: &Arc<dyn Owner>, other: &Arc<dyn Owner>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
