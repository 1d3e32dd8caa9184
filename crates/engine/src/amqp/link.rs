//! The links of a connection, by their purpose.

use std::collections::VecDeque;
use std::sync::Arc;

use barid_amqp::{Fields, SessionId};
use barid_core::entity::{Mode, Part, ReceiverId};

use super::keys::Right;
use super::receiving::Outbound;
use crate::denied_action::Action;
use crate::entities::{Node, Queue};

/// The address of the node that takes tokens.
pub const TOKENS: &str = "$cbs";

/// The rights of which a client needs one to make requests to an entity. Each operation needs one of its own.
pub const RIGHTS_OF_REQUESTS: [Right; 3] = [Right::Listen, Right::Send, Right::Manage];

/// A link, by its purpose.
#[derive(Debug)]
pub enum Link {
    /// The client sends tokens, or requests to an entity.
    Requests(RequestLink),
    /// The client gets the responses.
    Responses(ResponseLink),
    /// The client sends messages to an entity.
    Sender(SenderLink),
    /// The client receives messages from an entity.
    Receiver(ReceiverLink),
}

impl Link {
    /// Returns the rights of which the client needs one for the link, the path that they are for, and the action
    /// that is denied without them. `None`: everybody may have the link.
    pub fn needs(&self) -> Option<(&'static [Right], &str, Action)> {
        match self {
            Self::Sender(sender) => Some((&[Right::Send], &sender.path, Action::Send)),
            Self::Receiver(receiver) => Some((&[Right::Listen], &receiver.path, Action::Receive)),
            Self::Requests(RequestLink { service: Service::Tokens, .. }) => None,
            Self::Requests(RequestLink { service: Service::Management { path, .. }, .. }) => {
                Some((&RIGHTS_OF_REQUESTS, path, Action::Manage))
            }
            Self::Responses(responses) if *responses.node == *TOKENS => None,
            Self::Responses(responses) => {
                Some((&RIGHTS_OF_REQUESTS, &responses.node, Action::Manage))
            }
        }
    }
}

/// A service that answers requests.
#[derive(Clone, Debug)]
pub enum Service {
    /// `$cbs`, which takes tokens.
    Tokens,
    /// `$management` of an entity.
    Management {
        /// The canonical path of the entity.
        path: Box<str>,
        /// The entity.
        node: Node,
        /// The part of the entity that is meant.
        part: Part,
    },
}

/// A link on which a client sends requests to a service.
#[derive(Debug)]
pub struct RequestLink {
    /// The AMQP session of the link.
    pub session: SessionId,
    /// The service that gets the requests.
    pub service: Service,
}

/// A link on which a service sends responses to a client.
#[derive(Debug)]
pub struct ResponseLink {
    /// The AMQP session of the link.
    pub session: SessionId,
    /// The link's name.
    pub name: Box<str>,
    /// The target address that the client gave.
    pub target: Option<Box<str>>,
    /// The node that answers: `$cbs`, or `{path}/$management`.
    pub node: Box<str>,
    /// Responses that wait for credit.
    pub waiting: VecDeque<Vec<u8>>,
    /// Bytes of the waiting responses.
    pub bytes: usize,
}

/// A link on which a client sends messages to an entity.
#[derive(Debug)]
pub struct SenderLink {
    /// The canonical path of the entity.
    pub path: Box<str>,
    /// The entity.
    pub node: Node,
}

/// A link on which a client receives messages from an entity.
#[derive(Debug)]
pub struct ReceiverLink {
    /// The link's name.
    pub name: Box<str>,
    /// The id under which the entity knows the receiver.
    pub id: ReceiverId,
    /// The canonical path of the entity.
    pub path: Box<str>,
    /// The entity.
    pub queue: Arc<Queue>,
    /// The part of the entity that is received from.
    pub part: Part,
    /// The receive mode: whether messages are locked.
    pub mode: Mode,
    /// Whether the receiver holds a session, or waits for one.
    pub has_session: bool,
    /// The receiver waits for a session, so its attach has not been answered.
    pub pending: bool,
    /// The session filter of the client, until the attach is answered.
    pub filter: Option<Fields>,
    /// Messages on their way from the entity to the client.
    pub outbound: Outbound,
}
