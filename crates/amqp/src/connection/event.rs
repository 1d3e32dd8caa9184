use std::sync::Arc;

use crate::frame::{Attach, DeliveryState, Open, Role, Tag};
use crate::{Error, Fields};

/// A session of a connection; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(super) channel: u16,
    pub(super) serial: u32,
}

/// A link of a connection; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub(super) slot: u32,
    pub(super) serial: u32,
}

/// A delivery that came from the peer; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncomingId {
    pub(super) session: SessionId,
    /// Counted by us: the ids of the peer need not be unique.
    pub(super) number: u64,
}

/// A delivery that went to the peer; never given twice on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutgoingId {
    pub(super) session: SessionId,
    pub(super) number: u64,
}

/// What happened on a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A client says who it is. Nothing more is received before
    /// [`sasl_outcome`](super::Connection::sasl_outcome).
    SaslInit {
        /// One of those offered, or not: whatever the client says.
        mechanism: String,
        /// What the mechanism begins with; for PLAIN `\0user\0password`.
        response: Option<Vec<u8>>,
    },
    /// The peer has opened the connection, and it is open.
    Opened(Box<Open>),
    /// The peer asks for a link. It waits for
    /// [`accept_attach`](super::Connection::accept_attach) or
    /// [`refuse_attach`](super::Connection::refuse_attach), however long.
    Attach(Box<AttachRequest>),
    /// A link is gone, and so are its deliveries, with or without an answer to its attach. Emitted
    /// once for every link of an [`Attach`](Self::Attach) event, unless the caller refused or
    /// detached it.
    Detached {
        /// The link.
        link: LinkId,
        /// Whether the peer closed it for good, or left it to be attached again.
        closed: bool,
        /// Why: what the peer says, or what it was told.
        error: Option<Error>,
    },
    /// A whole message came.
    Delivery(Box<Delivery>),
    /// The peer gave credit to a link on which it receives, or there is room for unsettled
    /// deliveries again.
    Credit {
        /// The link.
        link: LinkId,
    },
    /// The peer wants what there is on a link on which it receives, as far as the credit goes, and
    /// then [`drained`](super::Connection::drained).
    Drain {
        /// The link.
        link: LinkId,
    },
    /// The peer says what became of a delivery; one event for each that exists.
    Disposition(Disposition),
    /// The connection is at its end; the last event.
    Closed {
        /// Why: what the peer says, or what it was told.
        error: Option<Error>,
    },
}

/// A link that the peer asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachRequest {
    /// The link.
    pub link: LinkId,
    /// The session it is in.
    pub session: SessionId,
    /// What the peer wrote; its role is the peer's.
    pub attach: Attach,
}

impl AttachRequest {
    /// The node of ours: the source of a peer that receives, the target of one that sends.
    pub fn address(&self) -> Option<&str> {
        match self.attach.role {
            Role::Receiver => self.attach.source.as_ref()?.address(),
            Role::Sender => self.attach.target.as_ref()?.address(),
        }
    }

    /// The filter of the source: `None` if nothing is said, not even with an empty map.
    ///
    /// The values stand there as the peer wrote them, bare or described.
    pub fn filter(&self) -> Option<Fields> {
        self.attach.source.as_ref()?.filter()
    }

    /// Whether the peer wants to send to the coordinator of transactions.
    pub fn is_to_coordinator(&self) -> bool {
        self.attach.target.as_ref().is_some_and(|target| target.is_coordinator())
    }

    /// Whether the node of ours is to be made for this link.
    pub fn is_dynamic(&self) -> bool {
        let node = match self.attach.role {
            Role::Receiver => &self.attach.source,
            Role::Sender => &self.attach.target,
        };
        node.as_ref().is_some_and(|node| node.is_dynamic())
    }
}

/// What a link is answered with. Source, target and settle modes are repeated as the peer wrote
/// them, save what is said here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttachAnswer {
    /// The address of a node that was made for this link.
    pub address: Option<String>,
    /// Another filter of the source.
    pub filter: Option<Fields>,
    /// About the link.
    pub properties: Fields,
    /// The longest message on this link in bytes, if it is another than that of all links.
    pub max_message_size: Option<u64>,
    /// How many bytes a message may be longer than that nevertheless.
    pub slack: u64,
    /// How many deliveries the peer may have on their way or unsettled, if it is the one that sends:
    /// see [`grant`](super::Connection::grant).
    pub credit: u32,
}

/// A message that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The link it came on.
    pub link: LinkId,
    /// For [`settle_incoming`](super::Connection::settle_incoming).
    pub id: IncomingId,
    /// What the peer calls it.
    pub tag: Tag,
    /// How the message is made; 0 is the one of AMQP 1.0.
    pub message_format: u32,
    /// All sections of it, as they came.
    pub message: Arc<[u8]>,
    /// Whether the peer wants to hear nothing about it.
    pub settled: bool,
    /// The state at the peer, such as the transaction it belongs to.
    pub state: Option<DeliveryState>,
}

/// What the peer says about a delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct Disposition {
    /// The link it went on.
    pub link: LinkId,
    /// For [`settle_outgoing`](super::Connection::settle_outgoing), if it is not settled.
    pub delivery: OutgoingId,
    /// What it was called.
    pub tag: Tag,
    /// What became of it; `None` if the peer does not say.
    pub state: Option<Arc<DeliveryState>>,
    /// Whether the peer has forgotten the delivery and wants no answer.
    pub settled: bool,
}
