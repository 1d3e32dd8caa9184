//! The turn of a connection on an IO thread: its inputs and its outcome.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::turn::Turn;

use crate::logins::LoginOwner;
use crate::shared::Shared;

/// The parts of its IO thread that a connection uses during its turn.
pub struct IoTurn<'a> {
    /// The engine's part of the turn: context, scratch memory and budget.
    pub turn: Turn<'a>,
    /// The state that all threads share.
    pub shared: &'a Arc<Shared>,
    /// The IO thread, as the owner that other threads post to.
    pub owner: &'a Arc<dyn LoginOwner>,
}

impl IoTurn<'_> {
    /// Returns the time by which a connection must be open that begins to open, or to log in, now.
    pub fn opens_until(&self) -> MonoTime {
        let timeout = self.shared.settings().limits.connect_timeout;
        self.turn.context.worker.now.after(Duration::from_secs(u64::from(timeout)))
    }
}

/// Readiness of a socket, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readiness {
    /// There are bytes to read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The client has closed its side, or the connection is broken.
    pub closed: bool,
    /// The connection is broken: nothing more can be sent.
    pub broken: bool,
}

impl Readiness {
    /// Returns the readiness that two reports amount to together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
            closed: self.closed || other.closed,
            broken: self.broken || other.broken,
        }
    }
}

/// The next step for a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The connection waits until the kernel reports a change.
    Wait,
    /// The connection has more to read. It gets another turn after the other connections.
    Again,
    /// The client of a WebSocket has chosen AMQP. The connection continues as an AMQP connection, with the
    /// bytes that have been read.
    SpeaksAmqp,
    /// The session of the client is at another broker. Its bytes, which were read and not handled, are passed on.
    Relays,
    /// The connection has ended and is removed.
    Gone,
}
