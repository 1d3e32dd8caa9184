use std::sync::Arc;

use crate::frame::{Attach, DeliveryState, Open, Role, Tag};
use crate::{Error, Fields};

/// Identifier of a session; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(super) channel: u16,
    pub(super) serial: u32,
}

/// Identifier of a link; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub(super) slot: u32,
    pub(super) serial: u32,
}

/// Identifier of a delivery from the peer; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncomingId {
    pub(super) session: SessionId,
    /// Counted by this side: the delivery ids of the peer need not be unique.
    pub(super) number: u64,
}

/// Identifier of a delivery to the peer; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId {
    pub(super) session: SessionId,
    pub(super) number: u64,
}

/// Something that happened on a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The client starts the authentication. No further frame is received before
    /// [`sasl_outcome`](super::Connection::sasl_outcome) is called.
    SaslInit {
        /// Name of the mechanism as the client wrote it; not necessarily one of those offered.
        mechanism: String,
        /// Initial response of the mechanism; for PLAIN `\0user\0password`.
        response: Option<Vec<u8>>,
    },
    /// The peer has opened the connection, and this side has answered: the connection is open.
    Opened(Box<Open>),
    /// The peer asks for a link. It waits without a time limit for
    /// [`accept_attach`](super::Connection::accept_attach) or
    /// [`refuse_attach`](super::Connection::refuse_attach).
    Attach(Box<AttachRequest>),
    /// A link is gone, and its deliveries with it, whether or not its attach was answered. Emitted
    /// once for every link of an [`Attach`](Self::Attach) event, unless the caller refused or
    /// detached the link itself.
    Detached {
        /// The link.
        link: LinkId,
        /// Whether the peer closed the link for good; `false` if the link may be attached again.
        closed: bool,
        /// Error that the peer sent, or that was sent to the peer.
        error: Option<Error>,
    },
    /// A complete message arrived.
    Delivery(Box<Delivery>),
    /// The peer gave credit to a link on which it receives, or unsettled deliveries have become few
    /// enough to send again.
    Credit {
        /// The link.
        link: LinkId,
    },
    /// The peer drains a link on which it receives: the caller sends the messages that there are, as
    /// far as the credit goes, and then calls [`drained`](super::Connection::drained).
    Drain {
        /// The link.
        link: LinkId,
    },
    /// The peer reports the state of a delivery. One event for each delivery that exists.
    Disposition(Disposition),
    /// The connection has ended; this is the last event.
    Closed {
        /// Error that the peer sent, or that was sent to the peer.
        error: Option<Error>,
    },
}

/// The outcome of an authentication (5.3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslOutcome {
    /// The client is authenticated.
    Ok,
    /// The credentials are not accepted.
    Auth,
    /// The credentials cannot be checked at present. The client may try again with the same ones.
    SysTemp,
}

impl SaslOutcome {
    /// Returns the code that stands for the outcome in a frame.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::SysTemp => 4,
        }
    }
}

/// A link that the peer asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachRequest {
    /// The link.
    pub link: LinkId,
    /// The session of the link.
    pub session: SessionId,
    /// The attach as the peer wrote it; its role is the role of the peer.
    pub attach: Attach,
}

impl AttachRequest {
    /// Returns the address of the node on this side: the source if the peer receives, the target if
    /// it sends.
    pub fn address(&self) -> Option<&str> {
        match self.attach.role {
            Role::Receiver => self.attach.source.as_ref()?.address(),
            Role::Sender => self.attach.target.as_ref()?.address(),
        }
    }

    /// Returns the filter of the source; `None` if the peer sent no filter, not even an empty map.
    ///
    /// The values are as the peer wrote them, bare or described.
    pub fn filter(&self) -> Option<Fields> {
        self.attach.source.as_ref()?.filter()
    }

    /// Whether the peer wants to send to the transaction coordinator.
    pub fn is_to_coordinator(&self) -> bool {
        self.attach.target.as_ref().is_some_and(|target| target.is_coordinator())
    }

    /// Whether the node on this side is to be created for this link.
    pub fn is_dynamic(&self) -> bool {
        let node = match self.attach.role {
            Role::Receiver => &self.attach.source,
            Role::Sender => &self.attach.target,
        };
        node.as_ref().is_some_and(|node| node.is_dynamic())
    }
}

/// The answer to an attach. Source, target and settle modes are repeated as the peer wrote them,
/// except for what is given here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttachAnswer {
    /// Address of the node that was created for this link.
    pub address: Option<String>,
    /// Filter of the source, if it differs from the one requested.
    pub filter: Option<Fields>,
    /// Properties of the link.
    pub properties: Fields,
    /// Maximum message size on this link, in bytes; `None` for that of the connection's
    /// [`Limits`](super::Limits).
    pub max_message_size: Option<u64>,
    /// Number of bytes by which a message may exceed that size and still be taken.
    pub slack: u64,
    /// Number of deliveries that the peer may have under way or unsettled, if it is the sender: see
    /// [`grant`](super::Connection::grant).
    pub credit: u32,
}

/// A message that arrived from the peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The link it arrived on.
    pub link: LinkId,
    /// Identifier for [`settle_incoming`](super::Connection::settle_incoming).
    pub id: IncomingId,
    /// Delivery tag that the peer gave.
    pub tag: Tag,
    /// Message format; 0 is that of AMQP 1.0.
    pub message_format: u32,
    /// All sections of the message, as they were received.
    pub message: Arc<[u8]>,
    /// Whether the peer sent it settled and expects no outcome.
    pub settled: bool,
    /// State at the peer, such as the transaction the delivery belongs to.
    pub state: Option<DeliveryState>,
}

/// The peer's report on a delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct Disposition {
    /// The link it was sent on.
    pub link: LinkId,
    /// Identifier for [`settle_outgoing`](super::Connection::settle_outgoing), if the peer has not
    /// settled the delivery.
    pub delivery: OutgoingId,
    /// Delivery tag it was sent with.
    pub tag: Tag,
    /// Outcome; `None` if the peer gives none.
    pub state: Option<Arc<DeliveryState>>,
    /// Whether the peer has settled the delivery and expects no answer.
    pub settled: bool,
}
