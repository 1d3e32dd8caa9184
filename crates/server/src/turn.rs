//! The turn of a connection: what it needs of its thread, what it is told, and what becomes of it.

use std::sync::Arc;

use barid_engine::budget::Budget;
use barid_engine::lifecycle::Context;
use barid_engine::run::Run;
use barid_engine::session::Answers;
use barid_engine::state_requests::Responses;
use mqtt_proto::{PacketId, PacketType};

use crate::shared::Shared;
use crate::verifier::LoginOwner;

/// What a connection needs of its thread while it has its turn.
pub struct Turn<'a> {
    /// The way to other sessions.
    pub context: &'a mut Context,
    /// What all threads share.
    pub shared: &'a Arc<Shared>,
    /// Memory that is used again by the next connection.
    pub scratch: &'a mut Scratch,
    /// The thread, for others.
    pub owner: &'a Arc<dyn LoginOwner>,
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

/// What the kernel tells of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readiness {
    /// There is something to read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The client has closed its side, or the connection is broken.
    pub closed: bool,
}

impl Readiness {
    /// What both tell.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
            closed: self.closed || other.closed,
        }
    }
}

/// What is to become of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for the kernel to tell of something new.
    Wait,
    /// It has more to read, after others have had their turn.
    Again,
    /// The client has chosen AMQP, and somebody else has to go on with what has come.
    SpeaksAmqp,
    /// It has gone.
    Gone,
}
