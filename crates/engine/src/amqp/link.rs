//! What the links of a connection are for.

use std::collections::VecDeque;
use std::sync::Arc;

use barid_amqp::{Fields, SessionId};
use barid_core::entity::{Mode, Part, ReceiverId};

use super::receiving::Outbound;
use crate::entities::{Node, Queue};

/// One link.
#[derive(Debug)]
pub enum Link {
    /// On which the client sends tokens, or requests to an entity.
    Requests(RequestLink),
    /// On which it gets the answers.
    Responses(ResponseLink),
    /// On which it sends messages to an entity.
    Sender(SenderLink),
    /// On which it receives messages from an entity.
    Receiver(ReceiverLink),
}

/// Of whom something is asked.
#[derive(Clone, Debug)]
pub enum Service {
    /// `$cbs`, which takes tokens.
    Tokens,
    /// `$management` of an entity.
    Management {
        /// The entity's path, as it is compared.
        path: Box<str>,
        /// The entity.
        node: Node,
        /// The part of it that is meant.
        part: Part,
    },
}

/// The client's way to a service.
#[derive(Debug)]
pub struct RequestLink {
    /// In which session.
    pub session: SessionId,
    /// Of whom it asks.
    pub service: Service,
}

/// A service's way to the client.
#[derive(Debug)]
pub struct ResponseLink {
    /// In which session.
    pub session: SessionId,
    /// The link's name.
    pub name: Box<str>,
    /// The address that the client gave its end.
    pub target: Option<Box<str>>,
    /// Who answers: `$cbs`, or `{path}/$management`.
    pub node: Box<str>,
    /// Answers that wait for credit.
    pub waiting: VecDeque<Vec<u8>>,
    /// Their bytes.
    pub bytes: usize,
}

/// The client's way to an entity.
#[derive(Debug)]
pub struct SenderLink {
    /// The entity's path, as it is compared.
    pub path: Box<str>,
    /// The entity.
    pub node: Node,
}

/// An entity's way to the client.
#[derive(Debug)]
pub struct ReceiverLink {
    /// The link's name.
    pub name: Box<str>,
    /// What the entity knows it as.
    pub id: ReceiverId,
    /// The entity's path, as it is compared.
    pub path: Box<str>,
    /// The entity.
    pub queue: Arc<Queue>,
    /// Which part of it.
    pub part: Part,
    /// Whether messages are locked.
    pub mode: Mode,
    /// Whether it holds a session, or waits for one.
    pub has_session: bool,
    /// It waits for a session: the attach has not been answered.
    pub pending: bool,
    /// What the client asked for, until that is answered.
    pub filter: Option<Fields>,
    /// Messages on their way from the entity to the client.
    pub outbound: Outbound,
}
