//! The turn of a connection: what it needs of its thread.

use mqtt_proto::{PacketId, PacketType};

use crate::budget::Budget;
use crate::lifecycle::Context;
use crate::run::Run;
use crate::session::Answers;
use crate::state_requests::Responses;

/// What a connection needs of its thread while it has its turn.
pub struct Turn<'a> {
    /// The way to other sessions.
    pub context: &'a mut Context,
    /// Memory that is used again by the next connection.
    pub scratch: &'a mut Scratch,
    /// How long it may go on.
    pub budget: Budget,
    /// For about how many clients the present round writes what they had no room for.
    pub writers: usize,
}

/// Memory for one turn of a connection that speaks MQTT; empty between turns but for its capacity.
#[derive(Debug, Default)]
pub struct Scratch {
    /// What the client publishes.
    pub run: Run,
    /// Responses of the state store.
    pub responses: Responses,
    /// Packets for the client itself.
    pub answers: Answers,
    /// Acknowledgements that the client sent.
    pub acks: Vec<ClientAck>,
}

/// An acknowledgement that a client sent.
#[derive(Clone, Copy, Debug)]
pub struct ClientAck {
    /// PUBACK, PUBREC or PUBCOMP.
    pub kind: PacketType,
    /// What it acknowledges.
    pub id: PacketId,
    /// Its Reason Code is no error.
    pub accepted: bool,
}
