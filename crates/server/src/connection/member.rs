//! A connection to or from another broker that carries messages, as an IO thread handles it.
//!
//! The handshake is over when an IO thread gets the connection. The frames are those of `barid-peers`.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use barid_core::stamp::Stamp;
use barid_engine::cluster::{Inbound, Link};
use barid_engine::ids::ConnectionId;
use barid_engine::owner::Owner;
use barid_peers::{Destination, Frame, FrameError, Inquiry, Retaining, Run, Told, decode};
use mqtt_proto::MAX_PACKET_LEN;
use tokio::sync::oneshot;
use tracing::warn;

use crate::transport::{Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// Maximum length of a frame: a packet of the maximum length, or a read buffer full of packets, with names.
const FRAME_MAX: usize = MAX_PACKET_LEN + 256 * 1024;

/// Maximum number of reads in one turn.
const READS: usize = 4;

/// A connection of a message link.
#[derive(Debug)]
pub struct MemberConnection {
    id: ConnectionId,
    socket: Arc<Tcp>,
    transport: Transport,
    side: Side,
    /// Bytes that were read and not handled: a frame that has not arrived as a whole, and frames for which the turn was too
    /// short.
    unread: Vec<u8>,
    /// Whether the turn was too short.
    is_interrupted: bool,
    /// Acknowledgements that have not been sent.
    unsent: Vec<u8>,
    /// The last acknowledgement.
    acknowledged: u64,
    names: Names,
    lost: Lost,
}

/// The direction in which messages go.
#[derive(Debug)]
pub enum Side {
    /// To the other broker.
    Outgoing(Arc<Link>),
    /// From the other broker.
    Incoming(Arc<Inbound>),
}

/// Says that a connection has ended, also when it is dropped.
#[derive(Debug)]
pub struct Lost(Option<oneshot::Sender<()>>);

impl Lost {
    /// Creates one that tells this receiver.
    pub fn to(receiver: oneshot::Sender<()>) -> Self {
        Self(Some(receiver))
    }

    /// Creates one that nobody listens to.
    pub fn ignored() -> Self {
        Self(None)
    }

    /// Says it.
    fn tell(&mut self) {
        if let Some(lost) = self.0.take() {
            let _ = lost.send(());
        }
    }
}

impl MemberConnection {
    /// Creates the connection over a socket that does not block. `unread` has arrived behind the handshake. When the
    /// connection ends, `lost` says so.
    pub fn new(
        id: ConnectionId,
        (socket, transport): (Arc<Tcp>, Transport),
        side: Side,
        unread: Vec<u8>,
        lost: Lost,
    ) -> Self {
        Self {
            id,
            socket,
            transport,
            side,
            unread,
            is_interrupted: false,
            unsent: Vec::new(),
            acknowledged: 0,
            names: Names::default(),
            lost,
        }
    }

    /// The number of the connection.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The socket, for the kernel to watch.
    pub fn socket(&self) -> &Arc<Tcp> {
        &self.socket
    }

    /// The connection has come to its IO thread.
    pub fn begin(&self, owner: &Arc<dyn Owner>) {
        match &self.side {
            Side::Outgoing(link) => link.attach(owner, self.id),
            Side::Incoming(inbound) => {
                if let Some(before) = inbound.attach(owner, self.id) {
                    owner.drain(before);
                }
            }
        }
    }

    /// Handles a report of the kernel about the socket.
    pub fn on_event(
        &mut self,
        turn: &mut IoTurn<'_>,
        buffer: &mut [u8],
        readiness: Readiness,
    ) -> Next {
        let next = match readiness.readable || readiness.closed {
            true => self.read(turn, buffer),
            false => Ok(Next::Wait),
        };
        let written = self.write(turn);
        match next.and_then(|next| written.map(|()| next)) {
            Ok(Next::Gone) => self.gone(),
            Ok(next) => next,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    warn!(%error, "closed a connection to another broker that broke the protocol");
                }
                self.gone()
            }
        }
    }

    /// Sends what waits: messages, or acknowledgements.
    pub fn on_drain(&mut self, turn: &mut IoTurn<'_>) -> Next {
        match self.write(turn) {
            Ok(()) if self.is_replaced() => self.gone(),
            Ok(()) => Next::Wait,
            Err(_) => self.gone(),
        }
    }

    /// Ends the connection.
    pub fn on_close(&mut self) -> Next {
        self.gone()
    }

    /// Whether another connection has taken the place of this one.
    fn is_replaced(&self) -> bool {
        match &self.side {
            Side::Outgoing(link) => !link.is_attached(self.id),
            Side::Incoming(inbound) => !inbound.is_attached(self.id),
        }
    }

    fn gone(&mut self) -> Next {
        if let Side::Outgoing(link) = &self.side {
            link.detach(self.id);
        }
        self.lost.tell();
        Next::Gone
    }

    fn read(&mut self, turn: &mut IoTurn<'_>, buffer: &mut [u8]) -> io::Result<Next> {
        if self.is_interrupted && !self.is_replaced() {
            self.handle_unread(turn)?;
        }
        for _ in 0..READS {
            if self.is_interrupted {
                return Ok(Next::Again);
            }
            let count = match self.transport.read(buffer) {
                Ok(0) => return Ok(Next::Gone),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if self.is_replaced() {
                return Ok(Next::Gone);
            }
            if self.unread.is_empty() {
                let handled = self.handle(turn, &mut buffer[..count])?;
                self.unread.extend_from_slice(&buffer[handled..count]);
            } else {
                self.unread.extend_from_slice(&buffer[..count]);
                self.handle_unread(turn)?;
            }
            let is_all = count < buffer.len() && self.transport.short_read_is_all();
            if is_all && !self.is_interrupted {
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Again)
    }

    fn handle_unread(&mut self, turn: &mut IoTurn<'_>) -> io::Result<()> {
        let mut unread = std::mem::take(&mut self.unread);
        let handled = self.handle(turn, &mut unread)?;
        unread.drain(..handled);
        self.unread = unread;
        Ok(())
    }

    /// Handles the frames at the front of `bytes`, as long as the turn lasts. Returns their length.
    fn handle(&mut self, turn: &mut IoTurn<'_>, bytes: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        self.is_interrupted = false;
        while let Some((frame, len)) = decode(&bytes[at..], FRAME_MAX).map_err(broken)? {
            match (&self.side, frame) {
                (Side::Outgoing(link), Frame::Done(sequence)) => {
                    if !link.acknowledge(sequence) {
                        return Err(broken(FrameError::Value));
                    }
                }
                (Side::Incoming(inbound), Frame::Run(run)) => {
                    let (sequence, end) = (run.sequence, at + len);
                    let packets = end - run.packets.len()..end;
                    if inbound.arrives(sequence) {
                        // The names are copied, because the packets are changed where they lie.
                        self.names.copy(&run);
                        let (run, turn) = (self.names.as_run(sequence), &mut turn.turn);
                        let (scratch, budget) = (&mut turn.scratch.run, &mut turn.budget);
                        let packets = &mut bytes[packets];
                        let from = inbound.member();
                        let delivered =
                            turn.context.deliver_here((from, &run), packets, scratch, budget);
                        inbound.handed_on(sequence, delivered.map_err(broken)?);
                    }
                }
                _ => return Err(broken(FrameError::Unexpected)),
            }
            at += len;
            if turn.turn.budget.is_spent() {
                self.is_interrupted = at < bytes.len();
                break;
            }
        }
        Ok(at)
    }

    fn write(&mut self, turn: &mut IoTurn<'_>) -> io::Result<()> {
        let transport = &mut self.transport;
        // TLS may have bytes that the socket has not taken.
        unless_blocked(transport.flush(), ())?;
        let mut put = |bytes: &[u8]| write_all(transport, bytes);
        match &self.side {
            Side::Outgoing(link) => link.write(turn.turn.context.engine.shards.sources(), put),
            Side::Incoming(inbound) => {
                let done = inbound.done(turn.turn.context.engine.shards.sources());
                if done > self.acknowledged {
                    self.acknowledged = done;
                    Frame::Done(done).encode(&mut self.unsent);
                }
                if !self.unsent.is_empty() {
                    let count = put(&self.unsent)?;
                    self.unsent.drain(..count);
                }
                Ok(())
            }
        }
    }
}

/// Writes until the socket takes no more. Returns the number of bytes.
fn write_all(transport: &mut Transport, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match unless_blocked(transport.write(&bytes[written..]), 0)? {
            0 => break,
            count => written += count,
        }
    }
    Ok(written)
}

/// Returns `otherwise` if the socket has taken nothing.
fn unless_blocked<T>(result: io::Result<T>, otherwise: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(otherwise),
        other => other,
    }
}

/// A copy of what a run says about its messages.
#[derive(Debug)]
struct Names {
    /// Tenant, publisher, and the text that belongs to the destination, or the user of the retained message.
    text: String,
    tenant: usize,
    publisher: usize,
    to: To,
    stamp: Option<Stamp>,
    is_v5: bool,
}

/// A destination, without its text.
#[derive(Debug)]
enum To {
    Sessions,
    Shared,
    StateStore(Inquiry<'static>),
    Inquirer(Told),
}

impl Names {
    fn copy(&mut self, run: &Run<'_>) {
        let user = run.retaining.map_or("", |retaining| retaining.user);
        let (to, last) = match run.to {
            Destination::Sessions => (To::Sessions, user),
            Destination::Shared(group) => (To::Shared, group),
            Destination::StateStore(inquiry) => {
                (To::StateStore(Inquiry { user: "", ..inquiry }), inquiry.user)
            }
            Destination::Inquirer(told) => (To::Inquirer(told), ""),
        };
        self.text.clear();
        self.text.extend([run.tenant, run.publisher, last]);
        (self.tenant, self.publisher) = (run.tenant.len(), run.publisher.len());
        (self.to, self.is_v5) = (to, run.is_v5);
        // Messages for others than sessions are not retained once more.
        let retaining = run.retaining.filter(|_| run.to == Destination::Sessions);
        self.stamp = retaining.map(|retaining| retaining.stamp);
    }

    /// Returns the run, without its packets.
    fn as_run(&self, sequence: u64) -> Run<'_> {
        let (tenant, rest) = self.text.split_at(self.tenant);
        let (publisher, last) = rest.split_at(self.publisher);
        let to = match self.to {
            To::Sessions => Destination::Sessions,
            To::Shared => Destination::Shared(last),
            To::StateStore(inquiry) => Destination::StateStore(Inquiry { user: last, ..inquiry }),
            To::Inquirer(told) => Destination::Inquirer(told),
        };
        let retaining = self.stamp.map(|stamp| Retaining { stamp, user: last });
        Run { sequence, tenant, publisher, to, is_v5: self.is_v5, retaining, packets: &[] }
    }
}

impl Default for Names {
    fn default() -> Self {
        let (text, to) = (String::new(), To::Sessions);
        Self { text, tenant: 0, publisher: 0, to, stamp: None, is_v5: false }
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
