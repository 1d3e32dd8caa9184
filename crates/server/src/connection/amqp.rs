//! The network connection of an AMQP client: reads bytes, passes frames to the engine, writes the engine's
//! output.
//!
//! ```text
//!  Proxy ──► Opening ──► Open ──► Closing ──► (gone)
//!              │  ▲                  ▲
//!              ▼  │                  │
//!           LoggingIn ───────────────┘
//! ```
//!
//! A connection belongs to one IO thread. Other threads notify it through its [`Inbox`].

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use barid_auth::Revocable;
use barid_core::time::MonoTime;
use barid_engine::amqp::{Container, Inbox, Keys, Leaving};
use barid_engine::ids::ConnectionId;
use barid_engine::owner::Owner;
use barid_engine::turn::Turn;
use mqtt_proto::ReasonCode;
use tracing::debug;

use super::amqp_login::LoggingIn;
use super::standing::Identity;
use super::unnamed;
use crate::strangers::Collected;
use crate::transport::{ListenerContext, Parts, PassedOn, Proxied, Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// Maximum number of reads of one connection before the others have their turn.
const READS_PER_TURN: usize = 4;

/// Time that a client has to read why its connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// Maximum capacity of the output buffer that an idle connection keeps, in bytes.
const KEPT_OUTPUT: usize = 128 * 1024;

/// The network connection of an AMQP client.
#[derive(Debug)]
pub struct AmqpConnection {
    id: ConnectionId,
    socket: Arc<Tcp>,
    pub(super) transport: Transport,
    /// Bytes that were read and not handled: the beginning of a frame.
    unread: Vec<u8>,
    /// Whether there may be more to read, which the kernel does not report again.
    paused: bool,
    /// Whether the client has closed its side.
    ends: bool,
    pub(super) stage: Stage,
    /// Counts the bytes buffered for a client that has not opened the connection yet; `None`: the connection
    /// is open.
    collected: Option<Collected>,
    pub(super) container: Container,
    pub(super) identity: Identity,
    /// What revocation lists say of the client's certificate, if it has shown one and has logged in.
    pub(super) certificate: Option<Revocable>,
    /// The listener, in case the client is to be passed on to another broker.
    listener: Arc<ListenerContext>,
    /// The client, if another broker passes it on.
    pub(super) passed_on: Option<Box<PassedOn>>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The PROXY protocol header is expected.
    Proxy { until: MonoTime },
    /// The client has to open the connection, and to prove who it is, before `until`.
    Opening { until: MonoTime },
    /// The client has sent its name and password, which are being verified. It is not read from.
    LoggingIn(Box<LoggingIn>),
    /// The connection is open.
    Open,
    /// All output has been sent. The client may read it until `until`.
    Closing { until: MonoTime },
}

/// The connection is lost: the socket cannot be used any more.
struct Lost(ErrorKind);

impl AmqpConnection {
    /// Creates a connection that was just accepted, or whose client has just chosen AMQP. It must open before
    /// `until`.
    pub fn new(parts: Parts, until: MonoTime, keys: Arc<dyn Keys>, owner: Arc<dyn Owner>) -> Self {
        let Parts { id, socket, transport, listener, peer, unread, passed_on } = parts;
        let is_behind_proxy = listener.proxy_protocol && !transport.speaks_amqp();
        let stage = if is_behind_proxy { Stage::Proxy { until } } else { Stage::Opening { until } };
        let inbox = Arc::new(Inbox::new(id, owner));
        let may_leave = passed_on.is_none() && keys.know_homes();
        let mut container = Container::new(listener.address, peer, keys, inbox);
        if may_leave {
            container.may_leave();
        }
        let collected = Some(Collected::new(&listener.strangers));
        Self {
            id,
            socket,
            transport,
            unread,
            paused: false,
            ends: false,
            stage,
            collected,
            container,
            identity: Identity::default(),
            certificate: None,
            listener,
            passed_on,
        }
    }

    /// Takes the connection apart, for a client that is to be passed on to another broker. Returns `None` if it cannot be.
    pub fn leave(mut self) -> Option<(Parts, Leaving)> {
        let mut leaving = self.container.leave()?;
        let mut unread = std::mem::take(&mut leaving.received);
        unread.append(&mut self.unread);
        let peer = self.container.peer;
        let Self { id, socket, transport, listener, passed_on, .. } = self;
        Some((Parts { id, socket, transport, listener, peer, unread, passed_on }, leaving))
    }

    /// Returns the number of the connection.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns the socket, for the kernel to watch.
    pub fn socket(&self) -> &Arc<Tcp> {
        &self.socket
    }

    /// Handles a report of the kernel about the socket.
    pub fn on_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        self.ends |= readiness.closed;
        if readiness.broken && self.is_held_back() {
            return self.lose(&mut turn.turn, &Lost(ErrorKind::ConnectionReset));
        }
        self.turn(turn, buffer, readiness.readable || readiness.closed)
    }

    /// Sends what waits for the client.
    pub fn on_drain(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        self.turn(turn, buffer, false)
    }

    /// Closes the connection, and tells the client the reason.
    pub fn on_close(&mut self, turn: &mut IoTurn<'_>, reason: ReasonCode) -> Next {
        self.container.close(&mut turn.turn, reason.name());
        self.say_goodbye(turn)
    }

    /// Sends what the client is told at the end.
    pub(super) fn say_goodbye(&mut self, turn: &mut IoTurn<'_>) -> Next {
        let _ = self.flush();
        self.linger(&mut turn.turn)
    }

    /// Handles a timer. The deadline may have moved since the timer was set.
    pub fn on_timer(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        let now = turn.turn.context.worker.now;
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Next::Wait;
        }
        match self.stage {
            Stage::Proxy { .. } | Stage::Opening { .. } => {
                debug!(peer = %self.container.peer, "no AMQP connection opened with a valid token within connect_timeout");
                let reason = "No valid token arrived within the connect timeout.";
                self.container.close(&mut turn.turn, reason);
                self.say_goodbye(turn)
            }
            Stage::LoggingIn(_) => {
                self.give_up_login(turn);
                self.say_goodbye(turn)
            }
            Stage::Closing { .. } => Next::Gone,
            Stage::Open if self.identity.is_expired(now) => self.expire(turn),
            Stage::Open => {
                self.container.begin_turn(&turn.turn);
                self.container.on_time(&mut turn.turn);
                // A quota may let the connection go on, in both directions.
                self.turn(turn, buffer, false)
            }
        }
    }

    /// Returns the time by which the connection needs a turn at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        match &self.stage {
            Stage::Proxy { until } | Stage::Opening { until } | Stage::Closing { until } => {
                Some(*until)
            }
            Stage::LoggingIn(waiting) => Some(waiting.until),
            Stage::Open => self.container.deadline().into_iter().chain(self.identity.expires).min(),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether the login of the client is being verified.
    pub(super) fn is_logging_in(&self) -> bool {
        matches!(self.stage, Stage::LoggingIn(_))
    }

    /// Whether the client has not opened the connection yet, or the connection is being closed.
    pub fn is_stranger(&self) -> bool {
        !self.is_open()
    }

    /// Whether a quota forbids reading from the client until [`Self::deadline`].
    pub fn is_held_back(&self) -> bool {
        self.is_open() && self.container.is_held_back()
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        self.container.is_at_limit(now)
    }

    /// Whether the connection may move to another thread: it is open, and no answer about its user is on its way.
    pub fn can_move(&self) -> bool {
        self.is_open() && !self.ends && !self.identity.is_awaited()
    }

    /// Gives the connection to another thread with `adopt`. Returns it if it is about to be closed and has to
    /// stay.
    pub fn move_to(
        self: Box<Self>,
        owner: Arc<dyn Owner>,
        adopt: impl FnOnce(Box<Self>),
    ) -> Result<(), Box<Self>> {
        if !self.can_move() {
            return Err(self);
        }
        let inbox = Arc::clone(self.container.inbox());
        let mut kept = Some(self);
        inbox.move_to(owner, || adopt(kept.take().expect("it is given once")));
        kept.map_or(Ok(()), Err)
    }

    pub(super) fn turn(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readable: bool,
    ) -> Next {
        if let Stage::Closing { .. } = self.stage {
            return self.drain_closing(buffer);
        }
        let next = self.read(turn, buffer, readable);
        let next = next.and_then(|next| self.count_collected().map(|()| next));
        next.unwrap_or_else(|lost| self.lose(&mut turn.turn, &lost))
    }

    /// Counts the bytes buffered for a client that has not opened the connection with a valid token.
    fn count_collected(&mut self) -> Result<(), Lost> {
        if self.is_open() {
            self.collected = None;
        }
        let Some(collected) = &mut self.collected else { return Ok(()) };
        let login = match &self.stage {
            Stage::LoggingIn(waiting) => waiting.bytes,
            _ => 0,
        };
        let bytes = self.unread.len() + self.container.collected() + login;
        collected.set(bytes).map_err(|error| Lost(error.kind()))
    }

    /// Handles notifications of other threads, reads up to a limit, handles what was read, and sends the
    /// output.
    fn read(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readable: bool,
    ) -> Result<Next, Lost> {
        if let Stage::Proxy { until } = self.stage {
            match Proxied::read(&self.socket).map_err(|error| Lost(error.kind()))? {
                Proxied::Incomplete => return Ok(Next::Wait),
                Proxied::Client(address) => {
                    self.container.peer = address.unwrap_or(self.container.peer);
                    self.stage = Stage::Opening { until };
                }
            }
        }
        self.container.begin_turn(&turn.turn);
        self.container.attend(&mut turn.turn);
        // Output that TLS and WebSocket have buffered goes first.
        let _ = self.transport.flush();
        self.handle_unread(turn);
        let mut more = readable || self.paused;
        if self.ends && (self.is_logging_in() || self.container.is_full(&turn.turn)) {
            // A client that has closed its side does not read the output that waits for it.
            return Err(Lost(ErrorKind::UnexpectedEof));
        }
        for _ in 0..READS_PER_TURN {
            let container = &mut self.container;
            if !more || container.is_closed() || container.is_spent() || container.leaves() {
                break;
            }
            if container.is_full(&turn.turn) || container.is_held_back() || self.is_logging_in() {
                break;
            }
            more = self.read_once(turn, buffer)?;
        }
        if self.container.leaves() {
            return Ok(Next::Relays);
        }
        more |= self.container.has_events() && !self.unread.is_empty();
        self.paused = more;
        let next = self.after(&mut turn.turn)?;
        let goes_on = more
            && next == Next::Wait
            && !self.is_logging_in()
            && !self.container.is_full(&turn.turn)
            && !self.container.is_held_back();
        Ok(if goes_on { Next::Again } else { next })
    }

    /// Handles what was read before and could not be handled.
    pub(super) fn handle_unread(&mut self, turn: &mut IoTurn<'_>) {
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            let handled = self.container.receive(&mut turn.turn, &unread);
            self.keep(&unread[handled..], Vec::new());
            self.log_in(turn);
        }
    }

    /// Reads once, and handles what was read. Returns false if there is no more to read now.
    fn read_once(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Result<bool, Lost> {
        // A frame that does not fit into half the buffer is assembled in `unread`.
        let large = self.unread.len() > buffer.len() / 2;
        let kept = if large { 0 } else { self.unread.len() };
        let room = self.container.may_read(buffer.len() - kept);
        if room == 0 {
            return Ok(true);
        }
        let read = self.transport.read(&mut buffer[kept..kept + room]);
        self.container.has_read(*read.as_ref().unwrap_or(&0));
        let read = match read {
            Ok(0) => return Err(Lost(ErrorKind::UnexpectedEof)),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => {
                if self.container.tenant_name().is_none() {
                    unnamed::note_failure(turn, self.container.peer, &error);
                }
                return Err(Lost(error.kind()));
            }
        };
        let filled = read == room;
        let memory = std::mem::take(&mut self.unread);
        if large {
            let mut whole = memory;
            whole.extend_from_slice(&buffer[..read]);
            let handled = self.container.receive(&mut turn.turn, &whole);
            self.keep(&whole[handled..], Vec::new());
        } else {
            buffer[..kept].copy_from_slice(&memory);
            let handled = self.container.receive(&mut turn.turn, &buffer[..kept + read]);
            self.keep(&buffer[handled..kept + read], memory);
        }
        self.log_in(turn);
        Ok(filled || self.ends || !self.transport.short_read_is_all())
    }

    fn keep(&mut self, rest: &[u8], mut memory: Vec<u8>) {
        // An idle connection keeps no buffer.
        if !rest.is_empty() {
            memory.clear();
            memory.extend_from_slice(rest);
            self.unread = memory;
        }
    }

    /// Sends the output, and handles that the connection has opened or closed.
    fn after(&mut self, turn: &mut Turn<'_>) -> Result<Next, Lost> {
        let is_let_in = self.container.is_open() && !self.container.is_closed();
        if let (Stage::Opening { .. }, true) = (&self.stage, is_let_in) {
            self.stage = Stage::Open;
            let tenant = self.container.tenant_name();
            debug!(peer = %self.container.peer, tenant, "AMQP connection opened");
            self.container.admit(turn);
        }
        let mut next = Next::Wait;
        loop {
            self.container.pump(turn);
            if self.container.output().is_empty() && !self.container.is_spent() {
                // The rest of the output waits for the client's windows.
                break;
            }
            let wrote_all = self.flush().map_err(|error| Lost(error.kind()))?;
            if !wrote_all || !self.container.has_more() {
                break;
            }
            if self.container.is_spent() {
                next = Next::Again;
                break;
            }
        }
        if self.container.is_closed() {
            return Ok(self.linger(turn));
        }
        Ok(next)
    }

    /// Writes output to the transport. Returns false if the client does not read fast enough.
    fn flush(&mut self) -> std::io::Result<bool> {
        let output = self.container.output();
        let mut written = 0;
        let mut result = Ok(true);
        while written < output.len() {
            match self.transport.write(&output[written..]) {
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    result = Ok(false);
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.container.has_written(written);
        let output = self.container.output();
        if output.is_empty() && output.capacity() > KEPT_OUTPUT {
            *output = Vec::new();
        }
        result
    }

    fn lose(&mut self, turn: &mut Turn<'_>, lost: &Lost) -> Next {
        let tenant = self.container.tenant_name();
        debug!(peer = %self.container.peer, tenant, "AMQP connection lost: {}", lost.0);
        self.container.note_abnormal_end(turn);
        self.gone(turn)
    }

    fn gone(&mut self, turn: &mut Turn<'_>) -> Next {
        self.container.abort(turn);
        self.transport.close();
        Next::Gone
    }

    /// Closes the broker's side, and lets the client read why. To close a socket with unread bytes would
    /// reset the connection, and the client could lose what was sent last.
    fn linger(&mut self, turn: &mut Turn<'_>) -> Next {
        self.container.abort(turn);
        self.transport.close();
        let _ = self.socket.shutdown(Shutdown::Write);
        self.stage = Stage::Closing { until: turn.context.worker.now.after(LINGER) };
        if self.ends { Next::Gone } else { Next::Again }
    }

    /// Reads and discards bytes until the client has closed its side.
    fn drain_closing(&mut self, buffer: &mut [u8]) -> Next {
        for _ in 0..READS_PER_TURN {
            match self.transport.read(buffer) {
                Ok(0) => return Next::Gone,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::Gone,
            }
        }
        Next::Again
    }
}
