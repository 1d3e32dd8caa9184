//! A client that belongs to another broker: its bytes are passed on, and what that broker sends comes back.
//!
//! ```text
//!  Waiting ──► Open ──► Ending ──► (gone)
//!     │                   ▲
//!     └───────────────────┘
//! ```
//!
//! TLS and WebSocket end here. The other broker reads from the link as from a socket of the client: an MQTT client belongs
//! to the broker that has its session, an AMQP client to the one that has the entities of its tenant.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::amqp::Answered;
use barid_engine::ids::ConnectionId;
use barid_engine::mqtt::{Refusal, refuse};
use barid_peers::Protocol;
use mqtt_proto::{Connect, FixedHeader, ReasonCode};
use tracing::debug;

use super::mqtt::CONNECT_MAX;
use crate::cluster::{Direction, Guest, NoHome, Relayed, Reply, Waiting, Wanted};
use crate::shared::Shared;
use crate::strangers::Collected;
use crate::transport::{Parts, Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// Maximum number of reads in each direction before other connections have their turn.
const READS_PER_TURN: usize = 4;

/// Time that each side has to close when the other one has ended.
const LINGER: Duration = Duration::from_secs(2);

const UNREACHABLE: Refusal =
    Refusal::new(ReasonCode::ServerUnavailable, "the broker with the session cannot be reached");

/// A client that is to be passed on.
pub struct Leaves {
    /// The name of the broker that it belongs to.
    pub home: Box<str>,
    /// What its bytes are.
    pub speaks: Speaks,
}

/// The protocol of a client that is passed on.
#[derive(Debug)]
pub enum Speaks {
    /// MQTT, from CONNECT on.
    Mqtt,
    /// AMQP, from the protocol header on.
    Amqp {
        /// What the client has got of the answers already; `None`: all of that has been removed.
        answered: Option<Answered>,
        /// What the client is told if the other broker cannot be reached.
        farewell: Vec<u8>,
    },
}

/// The connection of a client that belongs to another broker.
#[derive(Debug)]
pub struct RelayedConnection {
    id: ConnectionId,
    socket: Arc<Tcp>,
    peer: SocketAddr,
    home: Box<str>,
    speaks: Speaks,
    client: Client,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The link is being opened. `_collected` counts the bytes of the client.
    Waiting { until: MonoTime, _collected: Collected, _waiting: Waiting },
    /// Bytes pass in both directions.
    Open { link: Link, _counted: Relayed },
    /// One side has ended, and the other one has until then to take the rest.
    Ending { link: Option<Link>, until: MonoTime },
}

/// The side of the client.
#[derive(Debug)]
struct Client {
    transport: Transport,
    /// Bytes of the client that the link has not taken.
    unsent: Vec<u8>,
    input: Input,
}

/// The side of the other broker.
#[derive(Debug)]
struct Link {
    socket: Arc<Tcp>,
    transport: Transport,
    /// Bytes of that broker that the client has not taken.
    unsent: Vec<u8>,
    input: Input,
}

/// What is known of the bytes that come from one side.
#[derive(Debug)]
struct Input {
    /// Whether there may be something to read.
    is_ready: bool,
    /// Whether the kernel has reported the end: it is still to be read, and is reported only once.
    ends: bool,
    has_ended: bool,
}

impl RelayedConnection {
    /// Creates the connection of a client that this broker has served until now, and asks for a link. The client has until
    /// `until`.
    pub fn new(
        parts: Parts,
        Leaves { home, speaks }: Leaves,
        until: MonoTime,
        shared: &Shared,
        reply: Reply,
    ) -> Self {
        let Parts { id, socket, transport, listener, peer, unread, .. } = parts;
        let mut collected = Collected::new(&listener.strangers);
        let certificate = transport.client_certificate().unwrap_or_default().into();
        let protocol = match speaks {
            Speaks::Mqtt => Protocol::Mqtt,
            Speaks::Amqp { .. } => Protocol::Amqp,
        };
        let (address, listener) = (peer, listener.address);
        let client = Guest { home: home.clone(), address, protocol, listener, certificate };
        let (wanted, waiting) = Wanted::new(client, reply);
        match (&shared.cluster, collected.set(unread.len())) {
            (Some(cluster), Ok(())) => cluster.relays.want(wanted),
            _ => (wanted.reply)(Err(NoHome::Busy)),
        }
        let client = Client { transport, unsent: unread, input: Input::new() };
        Self {
            id,
            socket,
            peer,
            home,
            speaks,
            client,
            stage: Stage::Waiting { until, _collected: collected, _waiting: waiting },
        }
    }

    /// The number of the connection.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The socket of the client, for the kernel to watch.
    pub fn socket(&self) -> &Arc<Tcp> {
        &self.socket
    }

    /// The link has been opened, or not.
    pub fn on_link(
        &mut self,
        turn: &mut IoTurn<'_>,
        link: Result<(Arc<Tcp>, Transport), NoHome>,
        buffer: &mut [u8],
    ) -> Next {
        if !matches!(self.stage, Stage::Waiting { .. }) {
            return Next::Wait;
        }
        match (link, &turn.shared.cluster) {
            (Ok((socket, transport)), Some(cluster)) => {
                let link = Link { socket, transport, unsent: Vec::new(), input: Input::new() };
                let counted = cluster.relays.begins(Direction::ToOther);
                self.stage = Stage::Open { link, _counted: counted };
                self.pass_on(turn, buffer)
            }
            (Err(reason), _) => self.refuse(turn, &reason),
            (Ok(_), None) => Next::Gone,
        }
    }

    /// Handles a report of the kernel about the socket of the client.
    pub fn on_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        self.client.input.note(readiness);
        if let Stage::Waiting { .. } = self.stage {
            // A client that has closed its side does not wait for CONNACK.
            return if readiness.closed { Next::Gone } else { Next::Wait };
        }
        self.pass_on(turn, buffer)
    }

    /// Handles a report of the kernel about the link.
    pub fn on_link_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        if let Stage::Open { link, .. } | Stage::Ending { link: Some(link), .. } = &mut self.stage {
            link.input.note(readiness);
        }
        self.pass_on(turn, buffer)
    }

    /// Handles a timer.
    pub fn on_timer(&mut self, turn: &mut IoTurn<'_>) -> Next {
        let now = turn.turn.context.worker.now;
        match &self.stage {
            Stage::Waiting { until, .. } if now >= *until => {
                let reason = NoHome::TimedOut(self.home.clone());
                self.refuse(turn, &reason)
            }
            Stage::Ending { until, .. } if now >= *until => Next::Gone,
            _ => Next::Wait,
        }
    }

    /// Returns the time by which the connection needs a turn at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        match &self.stage {
            Stage::Waiting { until, .. } | Stage::Ending { until, .. } => Some(*until),
            Stage::Open { .. } => None,
        }
    }

    /// Refuses the client, whose bytes were not passed on.
    fn refuse(&mut self, turn: &mut IoTurn<'_>, reason: &NoHome) -> Next {
        if let Some(cluster) = &turn.shared.cluster {
            cluster.relays.refuses();
        }
        let unsent = std::mem::take(&mut self.client.unsent);
        match &mut self.speaks {
            Speaks::Mqtt => self.refuse_mqtt(turn, &unsent, reason),
            Speaks::Amqp { farewell, .. } => {
                let farewell = std::mem::take(farewell);
                put(&mut Vec::new(), &farewell, |bytes| self.client.transport.write(bytes));
            }
        }
        debug!(peer = %self.peer, "refused a client: {reason}");
        self.client.transport.close();
        let _ = self.socket.shutdown(Shutdown::Write);
        let until = turn.turn.context.worker.now.after(LINGER);
        self.stage = Stage::Ending { link: None, until };
        Next::Again
    }

    fn refuse_mqtt(&mut self, turn: &mut IoTurn<'_>, unsent: &[u8], reason: &NoHome) {
        let shared = turn.shared;
        let connect = FixedHeader::read(unsent, CONNECT_MAX).ok().flatten().and_then(|header| {
            let body = unsent.get(header.header_len..header.packet_len())?;
            Connect::decode(header, body).ok()
        });
        if let Some(connect) = connect {
            let refusal = UNREACHABLE.because(reason.to_string());
            let is_configured =
                |tenant: &str| shared.logins.know_tenant(&shared.settings(), tenant);
            let out = &mut self.client.transport;
            refuse(turn.turn.context, out, self.peer, &connect, &refusal, is_configured);
        }
    }

    /// Passes bytes on in both directions.
    fn pass_on(&mut self, turn: &IoTurn<'_>, buffer: &mut [u8]) -> Next {
        // Output that TLS and WebSocket have buffered goes first.
        let _ = self.client.transport.flush();
        let mut more = true;
        for _ in 0..READS_PER_TURN {
            more = match &mut self.stage {
                Stage::Waiting { .. } => return Next::Wait,
                Stage::Open { link, .. } | Stage::Ending { link: Some(link), .. } => {
                    let _ = link.transport.flush();
                    let out = link.take_from(&mut self.client, buffer);
                    self.client.take_from(link, &mut self.speaks, buffer) | out
                }
                Stage::Ending { link: None, .. } => self.client.discard(buffer),
            };
            if !more {
                break;
            }
        }
        match self.settle(turn.turn.context.worker.now) {
            Next::Wait if more => Next::Again,
            next => next,
        }
    }

    /// Ends one side when the other one has ended and all its bytes were passed on.
    fn settle(&mut self, now: MonoTime) -> Next {
        let link = match &mut self.stage {
            Stage::Open { link, .. } | Stage::Ending { link: Some(link), .. } => link,
            Stage::Ending { link: None, .. } if self.client.input.has_ended => return Next::Gone,
            Stage::Waiting { .. } | Stage::Ending { .. } => return Next::Wait,
        };
        if self.client.input.has_ended && link.input.has_ended {
            return Next::Gone;
        }
        if !self.client.input.has_ended && !link.input.has_ended {
            return Next::Wait;
        }
        if self.client.input.has_ended && self.client.unsent.is_empty() {
            link.transport.close();
            let _ = link.socket.shutdown(Shutdown::Write);
        }
        if link.input.has_ended && link.unsent.is_empty() {
            self.client.transport.close();
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Ending { link: None, until: now });
        self.stage = match stage {
            Stage::Open { link, .. } => {
                Stage::Ending { link: Some(link), until: now.after(LINGER) }
            }
            other => other,
        };
        Next::Wait
    }
}

impl Client {
    /// Takes bytes from the link, unless the client has not taken the last ones. Returns whether there may be more.
    fn take_from(&mut self, link: &mut Link, speaks: &mut Speaks, buffer: &mut [u8]) -> bool {
        let (unsent, transport) = (&mut link.unsent, &mut self.transport);
        let from = &mut link.transport;
        if self.input.has_ended {
            unsent.clear();
        }
        if !put(unsent, &[], |bytes| transport.write(bytes)) {
            return false;
        }
        let Some(count) = link.input.take(buffer, |buffer| from.read(buffer)) else {
            return false;
        };
        if (1..buffer.len()).contains(&count) && from.short_read_is_all() {
            link.input.is_dry();
        }
        if !self.input.has_ended {
            speaks.with_unanswered(&buffer[..count], |bytes| {
                put(unsent, bytes, |bytes| transport.write(bytes));
            });
        }
        true
    }

    /// Reads what nobody wants. Returns whether there may be more.
    fn discard(&mut self, buffer: &mut [u8]) -> bool {
        let transport = &mut self.transport;
        self.input.take(buffer, |buffer| transport.read(buffer)).is_some()
    }
}

impl Speaks {
    /// Calls `pass_on` with those of the bytes of the other broker that the client does not have yet.
    fn with_unanswered(&mut self, bytes: &[u8], pass_on: impl FnOnce(&[u8])) {
        let Self::Amqp { answered: answered @ Some(_), farewell } = self else {
            return pass_on(bytes);
        };
        if let Some(rest) = answered.as_mut().and_then(|answered| answered.take(bytes)) {
            (*answered, *farewell) = (None, Vec::new());
            pass_on(&rest);
        }
    }
}

impl Link {
    /// Takes bytes from the client, unless the link has not taken the last ones. Returns whether there may be more.
    fn take_from(&mut self, client: &mut Client, buffer: &mut [u8]) -> bool {
        let Client { transport, unsent, input } = client;
        if self.input.has_ended {
            unsent.clear();
        }
        let to = &mut self.transport;
        if !put(unsent, &[], |bytes| to.write(bytes)) {
            return false;
        }
        let Some(count) = input.take(buffer, |buffer| transport.read(buffer)) else {
            return false;
        };
        if (1..buffer.len()).contains(&count) && transport.short_read_is_all() {
            input.is_dry();
        }
        if !self.input.has_ended {
            put(unsent, &buffer[..count], |bytes| to.write(bytes));
        }
        true
    }
}

/// Writes `unsent` and, if that is all gone, `fresh`; what cannot be written now is `unsent` afterwards. Returns whether
/// that is nothing. A side that cannot be written to any more takes everything: its end is found when it is read.
fn put(
    unsent: &mut Vec<u8>,
    fresh: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> bool {
    let mut write_all = |mut bytes: &[u8]| {
        let before = bytes.len();
        while !bytes.is_empty() {
            match write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return before,
            }
        }
        before - bytes.len()
    };
    let written = write_all(unsent);
    if written < unsent.len() {
        unsent.drain(..written);
        unsent.extend_from_slice(fresh);
        return false;
    }
    // An idle connection keeps no buffer.
    *unsent = Vec::new();
    unsent.extend_from_slice(&fresh[write_all(fresh)..]);
    unsent.is_empty()
}

impl Input {
    /// There may be something to read.
    fn new() -> Self {
        Self { is_ready: true, ends: false, has_ended: false }
    }

    /// The kernel has reported something.
    fn note(&mut self, readiness: Readiness) {
        self.is_ready |= readiness.readable || readiness.closed;
        self.ends |= readiness.closed;
    }

    /// All that has arrived was read. The kernel reports what comes later.
    fn is_dry(&mut self) {
        self.is_ready = self.ends;
    }

    /// Reads if there may be something to read. Returns the number of bytes; `None`: there is nothing, or no more.
    fn take(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Option<usize> {
        if !self.is_ready || self.has_ended {
            return None;
        }
        match read(buffer) {
            Ok(0) => self.has_ended = true,
            Ok(count) => return Some(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Some(0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_ready = false,
            Err(_) => self.has_ended = true,
        }
        None
    }
}
