//! The turn of a connection: the resources that its thread lends to it.

use mqtt_proto::{PacketId, PacketType};

use crate::budget::Budget;
use crate::context::Context;
use crate::run::Run;
use crate::session::Answers;
use crate::state_requests::Responses;

/// The resources of a thread that a connection uses during its turn.
pub struct Turn<'a> {
    /// The thread's access to the engine, and to other sessions.
    pub context: &'a mut Context,
    /// Memory that the next connection uses again.
    pub scratch: &'a mut Scratch,
    /// The time that the turn may take.
    pub budget: Budget,
    /// The approximate number of clients to which the present round writes what they had no room for before.
    pub writers: usize,
}

/// Memory for one turn of an MQTT connection. Between turns it is empty, and keeps its capacity.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The messages that the client publishes.
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
    /// The Packet Identifier that it acknowledges.
    pub id: PacketId,
    /// Whether its Reason Code is not an error.
    pub accepted: bool,
}
