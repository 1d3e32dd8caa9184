//! The thread that a connection belongs to, as others see it.

use std::fmt;
use std::sync::Arc;

use mqtt_proto::ReasonCode;

use crate::ids::ConnectionId;

/// What others may ask of the thread that a connection belongs to. Returns at once, whatever locks the caller holds.
pub trait Owner: Send + Sync + fmt::Debug {
    /// Something waits for the client, or what its session waits for may have happened.
    fn drain(&self, connection: ConnectionId);

    /// The connection is to be closed.
    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell);
}

/// How a client is told by a DISCONNECT why its connection is closed. No packet may follow another that was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Not at all.
    Silent,
    /// By way of its session, if that is still the connection's, behind what is on its way.
    InTurn,
    /// At once: the session has been taken from it, between two packets.
    AtOnce,
}

/// Whether both are the same thread.
pub fn is_same(one: &Arc<dyn Owner>, other: &Arc<dyn Owner>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
