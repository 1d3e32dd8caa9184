//! The network connection of an MQTT client: reads bytes, passes packets to the engine, writes the engine's
//! output.
//!
//! ```text
//!  Proxy ──► Connect ──► Active ──► Closing ──► (gone)
//!               │  ▲                   ▲
//!               ▼  │                   │
//!          Authenticating ──► Refused ─┘
//!
//!  Connect ──► Leaving ──► (a relayed connection)
//! ```
//!
//! A connection belongs to one IO thread. Other threads may only use the outlet of its session.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use barid_auth::{CertificateNames, Exchange, Outcome};
use barid_core::time::MonoTime;
use barid_engine::ids::ConnectionId;
use barid_engine::mqtt::{Client, End};
use barid_engine::owner::{Farewell, Owner};
use mqtt_proto::{DecodeError, FixedHeader, PacketType, ReasonCode};
use tracing::debug;

use super::enhanced::Again;
use super::login::{REFERRED, Waiting};
use super::standing::Identity;
use super::unnamed;
use crate::cluster::Relayed;
use crate::strangers::{Collected, Delayed};
use crate::transport::{Accepted, ListenerContext, Parts, PassedOn, Proxied, Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// Maximum number of reads of one connection before the others have their turn.
const READS_PER_TURN: usize = 4;

/// Time that a client has to read why its connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// Time after which a client is told that too many connect: the time in which the rate admits a burst again.
const DELAY: Duration = Duration::from_secs(1);

/// Maximum size of a CONNECT, in bytes: room for a will, a user name and a password of maximum length. A
/// client without a session gets no more memory than this.
pub(super) const CONNECT_MAX: usize = 256 * 1024;

const EXPIRED: End =
    End::Refused(ReasonCode::NotAuthorized, "the token or certificate has expired");

/// The network connection of an MQTT client, or of a client that has not chosen its protocol yet.
#[derive(Debug)]
pub struct Connection {
    pub(super) id: ConnectionId,
    socket: Arc<Tcp>,
    pub(super) transport: Transport,
    pub(super) listener: Arc<ListenerContext>,
    pub(super) peer: SocketAddr,
    /// The beginning of a packet whose rest has not come yet.
    partial: Vec<u8>,
    /// Number of bytes at the end of `partial` that the client sent before it had a session. They are handled
    /// when the quotas allow it.
    unpaid: usize,
    /// Whether the client has closed its side. The end of the stream is still to be read, and the kernel
    /// reports it only once.
    ends: bool,
    /// The refusal of the CONNECT, if it is to be delayed.
    pub(super) delayed: Option<Box<(Vec<u8>, Delayed)>>,
    pub(super) stage: Stage,
    pub(super) identity: Identity,
    /// The names in the client's certificate, if it has shown one and has sent CONNECT, or another broker has told them.
    pub(super) certificate: Option<Box<CertificateNames>>,
    /// Counts the client if another broker passes it on.
    passed_on: Option<Relayed>,
    /// The client is authenticating again.
    pub(super) again: Option<Box<Again>>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The PROXY protocol header is expected.
    Proxy { until: MonoTime },
    /// CONNECT is expected. As soon as a part of it has arrived, `collected` counts its bytes.
    Connect { until: MonoTime, collected: Option<Box<Collected>> },
    /// CONNECT has arrived, and the session is at the broker with this name.
    Leaving(Box<str>),
    /// CONNECT has arrived, and the login is being verified.
    Authenticating(Box<Waiting>),
    /// The client has to answer an AUTH of an enhanced authentication.
    Challenged(Box<(Waiting, Exchange)>),
    /// The client has a session.
    Active(Box<Client>),
    /// Too many clients of the tenant have connected. The client is told at `until`, so that it does not try
    /// again at once.
    Refused { until: MonoTime },
    /// All output has been sent. The client may read it until `until`.
    Closing { until: MonoTime },
}

impl Connection {
    /// Creates a connection that was just accepted. It must open before `until`.
    pub fn new(accepted: Accepted, id: ConnectionId, until: MonoTime) -> std::io::Result<Self> {
        let Accepted { socket, peer, listener, passed_on, tls } = accepted;
        let socket = Arc::new(Tcp(socket));
        let transport = match tls {
            Some(tls) => Transport::of_link(Arc::clone(&socket), Some(tls)),
            None => Transport::new(Arc::clone(&socket), &listener)?,
        };
        let stage = if listener.proxy_protocol {
            Stage::Proxy { until }
        } else {
            Stage::Connect { until, collected: None }
        };
        let (certificate, passed_on) = match passed_on.map(|passed_on| *passed_on) {
            Some(PassedOn { certificate, counted }) => (certificate.map(Box::new), Some(counted)),
            None => (None, None),
        };
        Ok(Self {
            id,
            socket,
            transport,
            listener,
            peer,
            partial: Vec::new(),
            unpaid: 0,
            ends: false,
            delayed: None,
            stage,
            identity: Identity::default(),
            certificate,
            passed_on,
            again: None,
        })
    }

    /// Takes the connection apart, for a client that speaks another protocol.
    pub fn into_parts(self) -> Parts {
        let Self { id, socket, transport, listener, peer, partial, certificate, .. } = self;
        let certificate = certificate.map(|certificate| *certificate);
        let passed_on = self.passed_on.map(|counted| Box::new(PassedOn { certificate, counted }));
        Parts { id, socket, transport, listener, peer, unread: partial, passed_on }
    }

    /// Returns the name of the broker to which the client is to be passed on, unless it has gone: the kernel does not report
    /// that once more.
    pub fn leaves_for(&self) -> Option<&str> {
        match &self.stage {
            Stage::Leaving(home) if !self.ends => Some(home),
            _ => None,
        }
    }

    /// Whether another broker passes the client on to this one.
    pub(super) fn is_passed_on(&self) -> bool {
        self.passed_on.is_some()
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
            return self.end(turn, &End::Lost(ErrorKind::ConnectionReset));
        }
        let mut resumed = false;
        if readiness.writable {
            self.on_writable(turn);
            resumed = self.resume_reading();
        }
        if !readiness.readable && !readiness.closed && !resumed {
            return Next::Wait;
        }
        let next = self.read(turn, buffer).and_then(|next| self.count_collected().map(|()| next));
        next.unwrap_or_else(|end| self.end(turn, &end))
    }

    /// Counts the bytes of a CONNECT that is not complete, or those after a CONNECT whose login is being
    /// verified.
    fn count_collected(&mut self) -> Result<(), End> {
        let counted = match &mut self.stage {
            Stage::Authenticating(waiting) => waiting.count_unread(self.partial.len()),
            Stage::Challenged(challenged) => challenged.0.count_unread(self.partial.len()),
            Stage::Connect { collected, .. } if !self.partial.is_empty() || collected.is_some() => {
                let strangers = &self.listener.strangers;
                let new = || Box::new(Collected::new(strangers));
                collected.get_or_insert_with(new).set(self.partial.len())
            }
            _ => Ok(()),
        };
        counted.map_err(|_| {
            End::Refused(
                ReasonCode::ServerBusy,
                "connections without a session have sent more than max_connecting_bytes",
            )
        })
    }

    /// Sends what waits for the client, and reads again if it was paused for that.
    pub fn on_drain(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        let was_held_back = self.is_held_back();
        self.drain(turn, false);
        // A reload may have ended the wait for a quota.
        let goes_on = was_held_back && !self.is_held_back();
        if !(self.resume_reading() || goes_on) {
            return Next::Wait;
        }
        self.read(turn, buffer).unwrap_or_else(|end| self.end(turn, &end))
    }

    /// Handles the outcome of the login.
    pub fn on_outcome(
        &mut self,
        turn: &mut IoTurn<'_>,
        outcome: Outcome,
        buffer: &mut [u8],
    ) -> Next {
        self.conclude(turn, outcome, None, buffer)
    }

    /// Handles the outcome of a login. `named`: the user whom the client has named in
    /// its Authentication Data.
    pub(super) fn conclude(
        &mut self,
        turn: &mut IoTurn<'_>,
        outcome: Outcome,
        named: Option<&str>,
        buffer: &mut [u8],
    ) -> Next {
        if let Stage::Active(_) = self.stage {
            return self.on_outcome_again(turn, outcome);
        }
        let Some(waiting) = self.take_waiting(turn) else { return Next::Wait };
        let result = self.accept(turn, &waiting, outcome, named).and_then(|()| {
            self.owe(self.partial.len());
            self.read(turn, buffer)
        });
        result.unwrap_or_else(|end| self.end(turn, &end))
    }

    /// Takes the CONNECT whose login is being verified, if one is.
    pub(super) fn take_waiting(&mut self, turn: &IoTurn<'_>) -> Option<Box<Waiting>> {
        let Stage::Authenticating(_) = self.stage else { return None };
        let until = turn.turn.context.worker.now;
        let stage = Stage::Connect { until, collected: None };
        match std::mem::replace(&mut self.stage, stage) {
            Stage::Authenticating(waiting) => Some(waiting),
            _ => unreachable!("it was just seen"),
        }
    }

    /// Closes the connection.
    pub fn on_close(
        &mut self,
        turn: &mut IoTurn<'_>,
        reason: ReasonCode,
        farewell: Farewell,
    ) -> Next {
        self.end(turn, &End::Closed { reason, farewell })
    }

    /// Handles a timer. The deadline may have moved since the timer was set.
    pub fn on_timer(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Next {
        let now = turn.turn.context.worker.now;
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Next::Wait;
        }
        match &mut self.stage {
            Stage::Active(_) if self.identity.is_expired(now) => self.end(turn, &EXPIRED),
            Stage::Active(client) => {
                let reads = client.on_time(now).and_then(|reads| {
                    self.drain(turn, false);
                    if reads || self.resume_reading() {
                        self.read(turn, buffer)
                    } else {
                        Ok(Next::Wait)
                    }
                });
                reads.unwrap_or_else(|end| self.end(turn, &end))
            }
            Stage::Refused { .. } => self.tell_refusal(now),
            Stage::Closing { .. } => Next::Gone,
            Stage::Authenticating(_) => self.give_up_login(turn),
            _ => {
                debug!(peer = %self.peer, "no CONNECT within connect_timeout");
                Next::Gone
            }
        }
    }

    /// Returns the time by which the connection needs a turn at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        match &self.stage {
            Stage::Proxy { until }
            | Stage::Connect { until, .. }
            | Stage::Refused { until }
            | Stage::Closing { until } => Some(*until),
            Stage::Leaving(_) => None,
            Stage::Authenticating(waiting) => Some(waiting.until),
            Stage::Challenged(challenged) => Some(challenged.0.until),
            Stage::Active(client) => {
                client.deadline().into_iter().chain(self.identity.expires).min()
            }
        }
    }

    /// Whether the client has no session, or no longer has one.
    pub fn is_stranger(&self) -> bool {
        !matches!(self.stage, Stage::Active(_))
    }

    /// Whether a quota forbids reading from the client until [`Self::deadline`].
    pub fn is_held_back(&self) -> bool {
        matches!(&self.stage, Stage::Active(client) if client.is_held_back())
    }

    /// Whether a quota for what the client sends forbids reading from it until [`Self::deadline`].
    pub fn is_unread(&self) -> bool {
        matches!(&self.stage, Stage::Active(client) if client.is_unread())
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        matches!(&self.stage, Stage::Active(client) if client.is_at_limit(now))
    }

    /// Whether the connection may move to another thread: the client has a session, no answer about its user is on
    /// its way, and neither are its messages to other brokers.
    pub fn can_move(&self) -> bool {
        matches!(&self.stage, Stage::Active(client) if client.may_move())
            && !self.identity.is_awaited()
            && self.again.is_none()
    }

    /// Returns the connection of the only subscriber that gets what this client publishes, if it belongs to
    /// the same thread.
    pub fn partner(&self, owner: &Arc<dyn Owner>) -> Option<ConnectionId> {
        let Stage::Active(client) = &self.stage else { return None };
        client.partner(owner)
    }

    /// Gives the connection to another thread with `adopt`. Returns it if it is about to be closed and has to
    /// stay.
    pub fn move_to(
        self: Box<Self>,
        owner: Arc<dyn Owner>,
        adopt: impl FnOnce(Box<Self>),
    ) -> Result<(), Box<Self>> {
        let Stage::Active(client) = &self.stage else { return Err(self) };
        let (session, epoch) = client.attachment();
        let mut kept = Some(self);
        session.change_owner(epoch, owner, || adopt(kept.take().expect("it is given once")));
        kept.map_or(Ok(()), Err)
    }

    fn on_writable(&mut self, turn: &mut IoTurn<'_>) {
        if let Stage::Proxy { .. } = self.stage {
            // There is no output yet: TLS and WebSocket begin their handshakes after the PROXY protocol
            // header.
            return;
        }
        // Output that TLS and WebSocket have buffered goes first.
        if self.transport.flush().is_ok() {
            self.drain(turn, true);
        }
    }

    fn drain(&mut self, turn: &IoTurn<'_>, writable: bool) {
        if let Stage::Active(client) = &mut self.stage {
            client.drain(&turn.turn, &mut self.transport, writable);
        }
    }

    fn resume_reading(&mut self) -> bool {
        let Stage::Active(client) = &mut self.stage else { return false };
        client.resume_reading()
    }

    /// Reads up to a limit, and handles the packets in what was read.
    pub(super) fn read(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> Result<Next, End> {
        if let Stage::Proxy { until } = self.stage {
            match Proxied::read(&self.socket).map_err(|error| End::Lost(error.kind()))? {
                Proxied::Incomplete => return Ok(Next::Wait),
                Proxied::Client(address) => {
                    self.peer = address.unwrap_or(self.peer);
                    self.stage = Stage::Connect { until, collected: None };
                }
            }
        }
        for _ in 0..READS_PER_TURN {
            if self.ends
                && let Stage::Active(client) = &mut self.stage
            {
                client.forgive_answers(&turn.turn.context.worker);
            }
            match &self.stage {
                Stage::Authenticating(_) if self.ends => {
                    return Err(End::Lost(ErrorKind::UnexpectedEof));
                }
                Stage::Authenticating(_) => return Ok(Next::Wait),
                Stage::Leaving(_) => return Ok(Next::Relays),
                Stage::Refused { .. } if self.ends => {
                    return Err(End::Lost(ErrorKind::UnexpectedEof));
                }
                Stage::Refused { .. } => return Ok(Next::Wait),
                // A client that has closed its side does not read its answers.
                Stage::Active(client) if client.is_paused() && self.ends => {
                    return Err(End::Lost(ErrorKind::UnexpectedEof));
                }
                Stage::Active(client) if client.is_paused() => return Ok(Next::Wait),
                Stage::Active(client) if client.is_held_back() => return Ok(Next::Wait),
                _ => {}
            }
            if self.is_interrupted() {
                self.handle_partial(turn)?;
                if turn.turn.scratch.responses.take_are_much() || turn.turn.budget.is_spent() {
                    return Ok(Next::Again);
                }
                continue;
            }
            if self.unpaid > 0 {
                if self.pay(turn) == 0 {
                    return Ok(Next::Wait);
                }
                self.handle_partial(turn)?;
                if turn.turn.scratch.responses.take_are_much() || turn.turn.budget.is_spent() {
                    return Ok(Next::Again);
                }
                continue;
            }
            // A packet that does not fit into half the buffer is assembled in `partial`.
            let large = self.partial.len() > buffer.len() / 2;
            let kept = if large { 0 } else { self.partial.len() };
            let room = self.may_read(turn, buffer.len() - kept);
            if room == 0 {
                return Ok(Next::Wait);
            }
            let read = self.transport.read(&mut buffer[kept..kept + room]);
            self.has_read(turn, *read.as_ref().unwrap_or(&0));
            let n = match read {
                Ok(0) => return Err(End::Lost(ErrorKind::UnexpectedEof)),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    debug!(peer = %self.peer, %error, "cannot read from the client");
                    if self.is_stranger() {
                        unnamed::note_failure(turn, self.peer, &error);
                    }
                    return Err(End::Lost(error.kind()));
                }
            };
            if self.transport.speaks_amqp() {
                self.partial.extend_from_slice(&buffer[kept..kept + n]);
                return Ok(Next::SpeaksAmqp);
            }
            let filled = n == room;
            if large {
                self.partial.extend_from_slice(&buffer[..n]);
                self.handle_partial(turn)?;
            } else {
                buffer[..kept].copy_from_slice(&self.partial);
                let partial = std::mem::take(&mut self.partial);
                let handled = self.handle(turn, &mut buffer[..kept + n])?;
                self.keep_rest(partial, &buffer[handled..kept + n]);
            }
            if let Stage::Leaving(_) = self.stage {
                return Ok(Next::Relays);
            }
            if turn.turn.scratch.responses.take_are_much() || turn.turn.budget.is_spent() {
                return Ok(Next::Again);
            }
            if self.is_interrupted() || self.unpaid > 0 {
                continue;
            }
            if !filled && !self.ends && self.transport.short_read_is_all() {
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Again)
    }

    /// Returns how many bytes the quotas allow to be read from the client now, at most `most`.
    fn may_read(&mut self, turn: &IoTurn<'_>, most: usize) -> usize {
        match &mut self.stage {
            Stage::Active(client) => client.may_read(&turn.turn.context.worker, most),
            _ => most,
        }
    }

    /// Counts bytes that were read from the client, perhaps none.
    pub(super) fn has_read(&mut self, turn: &IoTurn<'_>, bytes: usize) {
        if let Stage::Active(client) = &mut self.stage {
            client.has_read(turn.turn.context.worker.now, bytes);
        }
    }

    /// Notes that so many bytes at the end of `partial` were sent before the client had a session.
    fn owe(&mut self, bytes: usize) {
        if let Stage::Active(client) = &mut self.stage
            && bytes > 0
        {
            client.expect_bytes(bytes);
            self.unpaid = bytes;
        }
    }

    /// Pays for some of the bytes that were sent before the client had a session, as many as the quotas allow
    /// now. Returns their number.
    fn pay(&mut self, turn: &IoTurn<'_>) -> usize {
        let paid = self.may_read(turn, self.unpaid);
        self.has_read(turn, paid);
        self.unpaid -= paid;
        paid
    }

    fn is_interrupted(&self) -> bool {
        matches!(&self.stage, Stage::Active(client) if client.is_interrupted())
    }

    pub(super) fn handle_partial(&mut self, turn: &mut IoTurn<'_>) -> Result<(), End> {
        let mut partial = std::mem::take(&mut self.partial);
        let paid = partial.len() - self.unpaid;
        let handled = self.handle(turn, &mut partial[..paid])?;
        partial.drain(..handled);
        if !partial.is_empty() {
            self.partial = partial;
        }
        Ok(())
    }

    fn keep_rest(&mut self, mut memory: Vec<u8>, rest: &[u8]) {
        if rest.is_empty() {
            // An idle connection keeps no buffer.
            return;
        }
        memory.clear();
        memory.extend_from_slice(rest);
        self.partial = memory;
    }

    /// Handles the complete packets in `bytes`, and the rest of a packet that began before. Returns the
    /// number of bytes handled.
    fn handle(&mut self, turn: &mut IoTurn<'_>, bytes: &mut [u8]) -> Result<usize, End> {
        let mut handled = 0;
        let was_stranger = self.is_stranger();
        if let Stage::Connect { .. } = self.stage {
            match self.first_packet(turn, bytes)? {
                Some(len) => handled = len,
                None => return Ok(0),
            }
        }
        if let Stage::Challenged(_) = self.stage {
            match self.auth_packet(turn, &bytes[handled..])? {
                Some(len) => handled += len,
                None => return Ok(handled),
            }
        }
        let mut end = bytes.len();
        if was_stranger && handled < end {
            // The client has sent more, without waiting for CONNACK.
            self.owe(end - handled);
            self.pay(turn);
            end -= self.unpaid;
        }
        match &mut self.stage {
            Stage::Active(client) => {
                let out = &mut self.transport;
                handled += client.handle(&mut turn.turn, out, &mut bytes[handled..end])?;
                if let Some(auth) = client.take_auth() {
                    self.on_auth_again(turn, &auth)?;
                }
                Ok(handled)
            }
            Stage::Refused { .. } | Stage::Closing { .. } => Ok(bytes.len()),
            Stage::Proxy { .. }
            | Stage::Connect { .. }
            | Stage::Leaving(_)
            | Stage::Authenticating(_)
            | Stage::Challenged(_) => Ok(handled),
        }
    }

    /// Handles the first packet, which must be CONNECT (MQTT-3.1.0-1). Returns its length, or `None` if it is
    /// not complete.
    fn first_packet(&mut self, turn: &mut IoTurn<'_>, bytes: &[u8]) -> Result<Option<usize>, End> {
        let most = turn.shared.settings().limits.max_packet_size.min(CONNECT_MAX);
        let Some(header) = FixedHeader::read(bytes, most)? else { return Ok(None) };
        if header.packet_type() != PacketType::Connect {
            return Err(End::Malformed(DecodeError::UnknownPacketType));
        }
        let Some(packet) = bytes.get(..header.packet_len()) else { return Ok(None) };
        let elsewhere = self.home_elsewhere(turn, header, &packet[header.header_len..]);
        if let Some((home, connect)) = elsewhere {
            if self.refer(turn, &home, &connect) {
                return Err(End::Refused(REFERRED.0, REFERRED.1));
            }
            self.stage = Stage::Leaving(home);
            return Ok(None);
        }
        self.on_connect(turn, header, &packet[header.header_len..])?;
        Ok(Some(packet.len()))
    }

    /// Ends the connection. The client is told why, if it can be.
    pub(super) fn end(&mut self, turn: &mut IoTurn<'_>, end: &End) -> Next {
        match &mut self.stage {
            Stage::Active(client) => {
                if !client.end(&mut turn.turn, &mut self.transport, end) {
                    return Next::Wait;
                }
            }
            Stage::Refused { .. } => return Next::Gone,
            Stage::Closing { .. } if matches!(end, End::Lost(_)) => return Next::Gone,
            Stage::Closing { .. } => return Next::Wait,
            Stage::Proxy { .. }
            | Stage::Connect { .. }
            | Stage::Leaving(_)
            | Stage::Authenticating(_)
            | Stage::Challenged(_) => {
                debug!(peer = %self.peer, listener = self.listener.name, "connection ended before it had a session: {end}");
            }
        }
        (self.partial, self.unpaid) = (Vec::new(), 0);
        let now = turn.turn.context.worker.now;
        if self.delayed.is_some() {
            self.stage = Stage::Refused { until: now.after(DELAY) };
            return Next::Wait;
        }
        self.stage = Stage::Closing { until: now.after(LINGER) };
        self.transport.close();
        self.linger(end)
    }

    /// Sends a refusal that was delayed.
    fn tell_refusal(&mut self, now: MonoTime) -> Next {
        if let Some(delayed) = self.delayed.take() {
            // A failed write is ignored: the connection closes anyway.
            let _ = self.transport.write(&delayed.0);
        }
        self.stage = Stage::Closing { until: now.after(LINGER) };
        self.transport.close();
        self.linger(&End::Closed {
            reason: ReasonCode::ConnectionRateExceeded,
            farewell: Farewell::Silent,
        })
    }

    /// Closes the broker's side, and lets the client read why. To close a socket with unread bytes would
    /// reset the connection, and the client could lose what was sent last.
    fn linger(&mut self, end: &End) -> Next {
        if matches!(end, End::Lost(_)) {
            return Next::Gone;
        }
        let _ = self.socket.shutdown(Shutdown::Write);
        Next::Again
    }
}
