//! One network connection: bytes in, packets handled, bytes out.
//!
//! ```text
//!  Proxy ──► Connect ──► Active ──► Closing ──► (gone)
//!               │  ▲                   ▲
//!               ▼  │                   │
//!          Authenticating ─────────────┘
//! ```
//!
//! A connection belongs to one thread. What other threads may touch of it is its session's outlet.

mod active;
mod connect;
mod denied;
mod opening;
mod publish;
mod requests;
mod subscribe;
mod wanted;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Owner, is_same};
use barid_engine::session::{SessionRef, Stint};
use mqtt_proto::{
    DecodeError, Disconnect, FixedHeader, PacketType, PropertiesBuf, Property, ReasonCode, Version,
};
use thiserror::Error;
use tracing::debug;

use crate::auth::Verdict;
use crate::strangers::Collected;
use crate::transport::{Accepted, ListenerContext, Parts, Proxied, Tcp, Transport};
use crate::turn::{Next, Readiness, Turn};
use active::Active;
use connect::Waiting;

/// Reads of one connection before others have their turn.
const READS_PER_TURN: usize = 4;

/// How long a connection that was told why it is closed may take to read that.
const LINGER: Duration = Duration::from_secs(2);

/// Bytes of the largest CONNECT: room for a will, a user name and a password of the longest. Strangers get
/// no more memory than this.
const CONNECT_MAX: usize = 256 * 1024;

/// Bytes of answers that a client may leave unread before it is not read from either.
const UNREAD_ANSWERS_MAX: usize = 512 * 1024;

/// One network connection.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    socket: Arc<Tcp>,
    transport: Transport,
    listener: Arc<ListenerContext>,
    peer: SocketAddr,
    /// The beginning of a packet whose rest has not come yet.
    partial: Vec<u8>,
    /// The client has closed its side: there is an end to read, which the kernel tells of only once.
    ends: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The PROXY protocol header is to come.
    Proxy { until: MonoTime },
    /// CONNECT is to come. What has come of it is counted as soon as it is more than usual.
    Connect { until: MonoTime, collected: Option<Box<Collected>> },
    /// CONNECT has come, and the login is being verified.
    Authenticating(Box<Waiting>),
    /// The client has a session.
    Active(Box<Active>),
    /// All is said; the client may still read it.
    Closing { until: MonoTime },
}

/// Why a connection ends.
#[derive(Clone, Debug, Error)]
pub enum End {
    /// The client has said DISCONNECT.
    #[error("the client disconnected")]
    Disconnected {
        /// It asked for its will to be published.
        with_will: bool,
    },
    /// The client, or the network, closed the connection.
    #[error("connection lost: {0}")]
    Lost(ErrorKind),
    /// The client sent bytes that are not MQTT, or not allowed.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The client did what the protocol or the broker does not allow.
    #[error("{1}")]
    Refused(ReasonCode, &'static str),
    /// The session is another connection's by now, or has ended. Whoever took it has posted why, and whether
    /// the client can be told.
    #[error("the session has been taken")]
    SessionTaken,
    /// The broker wants it.
    #[error("{}", .reason.name())]
    Closed {
        /// The reason that the client is told.
        reason: ReasonCode,
        /// Whether it can be told: not in the middle of another packet.
        tell: bool,
    },
}

impl Connection {
    /// A connection that was just accepted. It must open before `until`.
    pub fn new(accepted: Accepted, id: ConnectionId, until: MonoTime) -> std::io::Result<Self> {
        let Accepted { socket, peer, listener } = accepted;
        let socket = Arc::new(Tcp(socket));
        let transport = Transport::new(Arc::clone(&socket), &listener)?;
        let stage = if listener.proxy_protocol {
            Stage::Proxy { until }
        } else {
            Stage::Connect { until, collected: None }
        };
        Ok(Self { id, socket, transport, listener, peer, partial: Vec::new(), ends: false, stage })
    }

    /// Takes it apart, for somebody who speaks another protocol.
    pub fn into_parts(self) -> Parts {
        let Self { id, socket, transport, listener, peer, partial, .. } = self;
        Parts { id, socket, transport, listener, peer, unread: partial }
    }

    /// Which one it is.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The socket, for the kernel to watch.
    pub fn socket(&self) -> &Arc<Tcp> {
        &self.socket
    }

    /// The kernel tells of something.
    pub fn on_event(
        &mut self,
        turn: &mut Turn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        self.ends |= readiness.closed;
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

    /// Counts what has been collected of a CONNECT, or behind one whose login is being verified.
    fn count_collected(&mut self) -> Result<(), End> {
        let counted = match &mut self.stage {
            Stage::Authenticating(waiting) => waiting.count_unread(self.partial.len()),
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

    /// Something waits for the client.
    pub fn on_drain(&mut self, turn: &mut Turn<'_>, buffer: &mut [u8]) -> Next {
        self.drain(turn, false);
        if !self.resume_reading() {
            return Next::Wait;
        }
        self.read(turn, buffer).unwrap_or_else(|end| self.end(turn, &end))
    }

    /// The login has been verified.
    pub fn on_verdict(&mut self, turn: &mut Turn<'_>, verdict: Verdict, buffer: &mut [u8]) -> Next {
        let Stage::Authenticating(_) = self.stage else { return Next::Wait };
        let until = turn.context.worker.now;
        let Stage::Authenticating(waiting) =
            std::mem::replace(&mut self.stage, Stage::Connect { until, collected: None })
        else {
            unreachable!("it was just seen")
        };
        let result = self
            .accept(turn, &waiting, verdict)
            .and_then(|()| self.handle_partial(turn))
            .and_then(|()| self.read(turn, buffer));
        result.unwrap_or_else(|end| self.end(turn, &end))
    }

    /// The connection is to be closed.
    pub fn on_close(&mut self, turn: &mut Turn<'_>, reason: ReasonCode, tell: bool) -> Next {
        self.end(turn, &End::Closed { reason, tell })
    }

    /// A deadline has come, perhaps not the present one.
    pub fn on_timer(&mut self, turn: &mut Turn<'_>) -> Next {
        let now = turn.context.worker.now;
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Next::Wait;
        }
        match &self.stage {
            Stage::Active(_) => self.end(
                turn,
                &End::Refused(
                    ReasonCode::KeepAliveTimeout,
                    "no packet within one and a half times the Keep Alive",
                ),
            ),
            Stage::Closing { .. } => Next::Gone,
            _ => {
                debug!(peer = %self.peer, "no CONNECT within connect_timeout");
                Next::Gone
            }
        }
    }

    /// When to look at the connection at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        match &self.stage {
            Stage::Proxy { until } | Stage::Connect { until, .. } | Stage::Closing { until } => {
                Some(*until)
            }
            Stage::Authenticating(waiting) => Some(waiting.until),
            Stage::Active(active) => active.deadline(),
        }
    }

    /// Whether its client has no session, or none any more.
    pub fn is_stranger(&self) -> bool {
        !matches!(self.stage, Stage::Active(_))
    }

    /// Whether another thread may have it: it has a session, and nothing is under way.
    pub fn can_move(&self) -> bool {
        matches!(self.stage, Stage::Active(_))
    }

    /// The connection of the only subscriber that gets what this client publishes, if it is of the same
    /// thread.
    pub fn partner(&self, owner: &Arc<dyn Owner>) -> Option<ConnectionId> {
        let Stage::Active(active) = &self.stage else { return None };
        let partner = SessionRef::upgrade(&active.partner.as_ref()?.session)?;
        partner.inspect(|_, link| {
            link.filter(|link| is_same(owner, &link.owner)).map(|link| link.connection)
        })
    }

    /// Gives the connection to another thread with `adopt`; or back, if it is about to be closed.
    pub fn move_to(
        self: Box<Self>,
        owner: Arc<dyn Owner>,
        adopt: impl FnOnce(Box<Self>),
    ) -> Result<(), Box<Self>> {
        let Stage::Active(active) = &self.stage else { return Err(self) };
        let (session, epoch) = (active.session.clone(), active.epoch);
        let mut kept = Some(self);
        session.change_owner(epoch, owner, || adopt(kept.take().expect("it is given once")));
        kept.map_or(Ok(()), Err)
    }

    fn on_writable(&mut self, turn: &mut Turn<'_>) {
        if let Stage::Proxy { .. } = self.stage {
            // A handshake would take the PROXY protocol header for its own.
            return;
        }
        // What TLS and WebSocket hold back goes first.
        if self.transport.flush().is_ok() {
            self.drain(turn, true);
        }
    }

    fn drain(&mut self, turn: &Turn<'_>, writable: bool) {
        if let Stage::Active(active) = &self.stage {
            let transport = &mut self.transport;
            let write = |bytes: &[u8]| transport.write(bytes);
            let stint = Stint::of_one_among(turn.writers);
            active.session.drain(&turn.context.worker, active.epoch, writable, stint, write);
        }
    }

    /// Reads again from a client that did not read its answers and now does. True: it is time to.
    fn resume_reading(&mut self) -> bool {
        let Stage::Active(active) = &mut self.stage else { return false };
        let resumed = active.reading_paused
            && active.session.may_read_again(active.epoch, UNREAD_ANSWERS_MAX / 2);
        active.reading_paused &= !resumed;
        resumed
    }

    /// Reads what there is, up to a bound, and handles the packets in it.
    fn read(&mut self, turn: &mut Turn<'_>, buffer: &mut [u8]) -> Result<Next, End> {
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
            match &self.stage {
                Stage::Authenticating(_) if self.ends => {
                    return Err(End::Lost(ErrorKind::UnexpectedEof));
                }
                Stage::Authenticating(_) => return Ok(Next::Wait),
                // Nobody will read the answers of a client that has gone.
                Stage::Active(active) if active.reading_paused && self.ends => {
                    return Err(End::Lost(ErrorKind::UnexpectedEof));
                }
                Stage::Active(active) if active.reading_paused => return Ok(Next::Wait),
                _ => {}
            }
            if self.is_interrupted() {
                self.handle_partial(turn)?;
                if turn.scratch.responses.take_are_much() || turn.budget.is_spent() {
                    return Ok(Next::Again);
                }
                continue;
            }
            // A packet that does not fit into half the buffer is put together elsewhere.
            let large = self.partial.len() > buffer.len() / 2;
            let kept = if large { 0 } else { self.partial.len() };
            let n = match self.transport.read(&mut buffer[kept..]) {
                Ok(0) => return Err(End::Lost(ErrorKind::UnexpectedEof)),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    debug!(peer = %self.peer, %error, "read");
                    if error.kind() == ErrorKind::PermissionDenied {
                        self.deny_page(turn, &error.to_string());
                    }
                    return Err(End::Lost(error.kind()));
                }
            };
            if self.transport.speaks_amqp() {
                self.partial.extend_from_slice(&buffer[kept..kept + n]);
                return Ok(Next::SpeaksAmqp);
            }
            let filled = kept + n == buffer.len();
            if large {
                self.partial.extend_from_slice(&buffer[..n]);
                self.handle_partial(turn)?;
            } else {
                buffer[..kept].copy_from_slice(&self.partial);
                let partial = std::mem::take(&mut self.partial);
                let handled = self.handle(turn, &mut buffer[..kept + n])?;
                self.keep_rest(partial, &buffer[handled..kept + n]);
            }
            if turn.scratch.responses.take_are_much() || turn.budget.is_spent() {
                return Ok(Next::Again);
            }
            if self.is_interrupted() {
                continue;
            }
            if !filled && !self.ends && self.transport.short_read_is_all() {
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Again)
    }

    fn is_interrupted(&self) -> bool {
        matches!(&self.stage, Stage::Active(active) if active.interrupted)
    }

    fn handle_partial(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        let mut partial = std::mem::take(&mut self.partial);
        let handled = self.handle(turn, &mut partial)?;
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

    /// Handles the whole packets in `bytes`, and what was left of one before, and returns how many bytes they had.
    fn handle(&mut self, turn: &mut Turn<'_>, bytes: &mut [u8]) -> Result<usize, End> {
        let mut handled = 0;
        if let Stage::Connect { .. } = self.stage {
            match self.first_packet(turn, bytes)? {
                Some(len) => handled = len,
                None => return Ok(0),
            }
        }
        match &mut self.stage {
            Stage::Active(active) => {
                let transport = &mut self.transport;
                Ok(handled + active.handle(turn, transport, &mut bytes[handled..])?)
            }
            Stage::Closing { .. } => Ok(bytes.len()),
            Stage::Proxy { .. } | Stage::Connect { .. } | Stage::Authenticating(_) => Ok(handled),
        }
    }

    /// The first packet must be CONNECT (MQTT-3.1.0-1).
    fn first_packet(&mut self, turn: &mut Turn<'_>, bytes: &[u8]) -> Result<Option<usize>, End> {
        let most = turn.shared.settings().limits.max_packet_size.min(CONNECT_MAX);
        let Some(header) = FixedHeader::read(bytes, most)? else { return Ok(None) };
        if header.packet_type() != PacketType::Connect {
            return Err(End::Malformed(DecodeError::UnknownPacketType));
        }
        let Some(packet) = bytes.get(..header.packet_len()) else { return Ok(None) };
        self.on_connect(turn, header, &packet[header.header_len..])?;
        Ok(Some(packet.len()))
    }

    /// Ends the connection: the client is told why, if it can be, and the session learns of it.
    fn end(&mut self, turn: &mut Turn<'_>, end: &End) -> Next {
        if let (End::SessionTaken, Stage::Active(active)) = (end, &mut self.stage) {
            active.reading_paused = true;
            return Next::Wait;
        }
        let worker = &turn.context.worker;
        let until = worker.now.after(LINGER);
        let stage = std::mem::replace(&mut self.stage, Stage::Closing { until });
        let Stage::Active(active) = stage else {
            if let Stage::Closing { until } = stage {
                self.stage = Stage::Closing { until };
                return if matches!(end, End::Lost(_)) { Next::Gone } else { Next::Wait };
            }
            debug!(peer = %self.peer, listener = self.listener.name, "before CONNECT: {end}");
            self.partial = Vec::new();
            self.transport.close();
            return self.linger(end);
        };
        debug!(
            peer = %self.peer,
            tenant = &*active.tenant.name,
            client = &*active.session.client_id,
            "{end}"
        );
        let told = active.farewell(end);
        let counters = active.tenant.counters(worker.id);
        if !told.is_empty() {
            counters.sent.add(PacketType::Disconnect, 1, told.len() as u64);
            let transport = &mut self.transport;
            if active.session.append(active.epoch, &told) {
                let write = |bytes: &[u8]| transport.write(bytes);
                active.session.drain(worker, active.epoch, false, Stint::SHORT, write);
            } else {
                // The session is another connection's, and this one ended between two packets.
                let _ = transport.write(&told);
            }
        }
        self.partial = Vec::new();
        let _ = self.transport.flush();
        let will = !matches!(end, End::Disconnected { with_will: false });
        if will {
            counters.abnormal_disconnects.add(1);
        }
        active.tenant.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(store) = active.tenant.used_state_store() {
            let keys = active.watched.iter().flat_map(|watched| watched.iter()).map(|key| &**key);
            store.forget_watcher(&active.tenant, self.id.0, keys);
        }
        turn.context.connection_gone(&active.tenant, &active.session, self.id, active.epoch, will);
        self.transport.close();
        self.linger(end)
    }

    /// Lets the client read what it was told. Closing a socket with bytes unread would take them back.
    fn linger(&mut self, end: &End) -> Next {
        if matches!(end, End::Lost(_)) {
            return Next::Gone;
        }
        let _ = self.socket.shutdown(Shutdown::Write);
        Next::Again
    }
}

/// The DISCONNECT that tells an MQTT 5 client why. The Reason String is left out if the client's Maximum
/// Packet Size does not allow it (MQTT-3.14.2-3).
fn disconnect(reason: ReasonCode, text: &str, max_packet_size: u32) -> Vec<u8> {
    let mut properties = PropertiesBuf::default();
    properties.push(Property::ReasonString(text)).expect("reasons are short");
    let mut packet = Vec::new();
    let with_text = Disconnect { reason, properties: properties.as_properties() };
    with_text.encode(Version::V5, &mut packet).expect("a DISCONNECT can be encoded");
    if packet.len() > max_packet_size as usize {
        packet.clear();
        Disconnect::new(reason).encode(Version::V5, &mut packet).expect("as above");
    }
    packet
}
