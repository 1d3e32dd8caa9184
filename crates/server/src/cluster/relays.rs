//! Clients that belong to another broker than the one that they have reached: it has their sessions, or the entities of
//! their tenant.
//!
//! The broker that a client has reached passes its bytes on over a client link, one for each client.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use barid_peers::Protocol;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::mpsc;

use super::LinkStream;

/// Maximum number of clients that wait for links.
const WAITING_MAX: usize = 16_384;

/// Maximum number of operators that wait to be answered.
const OPERATORS_MAX: usize = 64;

/// Told of the link, or why there is none. Not called if the broker stops.
pub type Reply = Box<dyn FnOnce(Result<LinkStream, NoHome>) + Send>;

/// A client that waits for a link to the broker that it belongs to.
pub struct Wanted {
    /// The client.
    pub client: Guest,
    /// Whoever waits for the link.
    pub reply: Reply,
    waiting: Weak<()>,
}

/// A client waits for a link as long as this exists.
#[derive(Debug)]
pub struct Waiting(#[expect(dead_code, reason = "is only counted")] Arc<()>);

impl Wanted {
    /// Creates the wish for a link, and what says that it is still there.
    pub fn new(client: Guest, reply: Reply) -> (Self, Waiting) {
        let waiting = Arc::new(());
        (Self { client, reply, waiting: Arc::downgrade(&waiting) }, Waiting(waiting))
    }

    /// Whether the client still waits.
    pub fn is_wanted(&self) -> bool {
        self.waiting.strong_count() > 0
    }
}

/// A client that is to be passed on to another broker.
pub struct Guest {
    /// The name of that broker.
    pub home: Box<str>,
    /// The address of the client.
    pub address: SocketAddr,
    /// The protocol that the client speaks.
    pub protocol: Protocol,
    /// The address of the listener that it has reached.
    pub listener: SocketAddr,
    /// The certificate that the client has shown, in DER; empty: none.
    pub certificate: Box<[u8]>,
}

/// An operator whose requests another broker passes on.
pub struct Operator {
    /// The link.
    pub stream: LinkStream,
    /// The address of the operator.
    pub address: SocketAddr,
    /// The protocol that it speaks: one over HTTP.
    pub protocol: Protocol,
    /// The address of the listener that it has reached.
    pub listener: SocketAddr,
    /// Counts it.
    pub counted: Relayed,
}

/// Reason for which there is no link to the broker that a client belongs to.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoHome {
    /// The broker with this name cannot be reached.
    #[error(
        "the broker {0} is needed for this, and cannot be reached at present: `barid cluster status` shows why"
    )]
    NotUp(Box<str>),
    /// The broker with this name has not taken the client.
    #[error("the broker {0} is needed for this, and does not answer: {1}")]
    NoLink(Box<str>, String),
    /// What the client belongs to is being moved to another broker, or has been, and this one was asked.
    #[error("what the client belongs to is being moved to another broker")]
    Moving,
    /// Too many clients wait.
    #[error("too many clients wait for links to other brokers")]
    Busy,
    /// No link has come in time.
    #[error("the broker {0} is needed for this, and no link to it has come within connect_timeout")]
    TimedOut(Box<str>),
}

/// The clients of one broker that belong to another one, and those that others pass on to it.
#[derive(Debug)]
pub struct Relays {
    wanted: mpsc::Sender<Wanted>,
    receiver: Mutex<Option<mpsc::Receiver<Wanted>>>,
    operators: mpsc::Sender<Operator>,
    served: Mutex<Option<mpsc::Receiver<Operator>>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    to_others: AtomicU64,
    from_others: AtomicU64,
    refused: AtomicU64,
}

/// The direction in which a client is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It belongs to another broker.
    ToOther,
    /// Another broker passes it on to this one.
    FromOther,
}

/// Counts a client as long as it exists.
pub struct Relayed {
    counts: Arc<Counts>,
    direction: Direction,
}

impl Default for Relays {
    fn default() -> Self {
        let (wanted, receiver) = mpsc::channel(WAITING_MAX);
        let (operators, served) = mpsc::channel(OPERATORS_MAX);
        Self {
            wanted,
            receiver: Mutex::new(Some(receiver)),
            operators,
            served: Mutex::new(Some(served)),
            counts: Arc::default(),
        }
    }
}

impl Relays {
    /// Asks for a link. The reply may come before this returns.
    pub fn want(&self, wanted: Wanted) {
        if let Err(error) = self.wanted.try_send(wanted) {
            (error.into_inner().reply)(Err(NoHome::Busy));
        }
    }

    /// Returns what is asked for, for the one who opens the links. Returns `None` the second time.
    pub fn take_wanted(&self) -> Option<mpsc::Receiver<Wanted>> {
        self.receiver.lock().take()
    }

    /// Hands an operator to the one who answers. Too many at a time are disconnected.
    pub fn hand_over(&self, operator: Operator) {
        let _ = self.operators.try_send(operator);
    }

    /// Returns the operators, for the one who answers them. Returns `None` the second time.
    pub fn take_operators(&self) -> Option<mpsc::Receiver<Operator>> {
        self.served.lock().take()
    }

    /// Counts a client as long as the returned value exists.
    pub fn begins(&self, direction: Direction) -> Relayed {
        self.counts.of(direction).fetch_add(1, Ordering::Relaxed);
        Relayed { counts: Arc::clone(&self.counts), direction }
    }

    /// Number of clients now.
    pub fn count(&self, direction: Direction) -> u64 {
        self.counts.of(direction).load(Ordering::Relaxed)
    }

    /// A client was refused because there was no link.
    pub fn refuses(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of clients that were refused because there was no link.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Counts {
    fn of(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToOther => &self.to_others,
            Direction::FromOther => &self.from_others,
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.counts.of(self.direction).fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relayed").field(&self.direction).finish()
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("home", &self.client.home).finish_non_exhaustive()
    }
}
