//! The turn of a connection on an IO thread: what it is told, and what becomes of it.

use std::sync::Arc;

use barid_engine::turn::Turn;

use crate::shared::Shared;
use crate::verifier::LoginOwner;

/// What a connection needs of its IO thread while it has its turn.
pub struct IoTurn<'a> {
    /// What it needs to decide.
    pub turn: Turn<'a>,
    /// What all threads share.
    pub shared: &'a Arc<Shared>,
    /// The thread, for others.
    pub owner: &'a Arc<dyn LoginOwner>,
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
