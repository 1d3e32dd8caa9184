//! A connection to or from another broker that carries messages, as an IO thread handles it.
//!
//! The handshake is over when an IO thread gets the connection. The frames are those of `barid-peers`.

use std::io::{self, Read as _};
use std::sync::Arc;

use barid_engine::cluster::{Inbound, Link};
use barid_engine::ids::ConnectionId;
use barid_engine::owner::Owner;
use barid_engine::wire::Wire as _;
use barid_peers::{Destination, Frame, FrameError, Run, decode};
use mqtt_proto::MAX_PACKET_LEN;
use tokio::sync::oneshot;
use tracing::warn;

use crate::transport::{Socket, Tcp};
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
    side: Side,
    /// Bytes of a frame that has not arrived as a whole.
    unread: Vec<u8>,
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
        socket: Arc<Tcp>,
        side: Side,
        unread: Vec<u8>,
        lost: Lost,
    ) -> Self {
        Self {
            id,
            socket,
            side,
            unread,
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
        let mut socket = Socket(Arc::clone(&self.socket));
        for _ in 0..READS {
            let count = match socket.read(buffer) {
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
            if count < buffer.len() {
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

    /// Handles the frames at the front of `bytes`. Returns their length.
    fn handle(&mut self, turn: &mut IoTurn<'_>, bytes: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
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
                        let delivered = turn.context.deliver_here(&run, packets, scratch, budget);
                        inbound.handed_on(sequence, delivered.map_err(broken)?);
                    }
                }
                _ => return Err(broken(FrameError::Unexpected)),
            }
            at += len;
        }
        Ok(at)
    }

    fn write(&mut self, turn: &mut IoTurn<'_>) -> io::Result<()> {
        let socket = &self.socket;
        let put = |bytes: &[u8]| match socket.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
        match &self.side {
            Side::Outgoing(link) => link.write(put),
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

/// A copy of what a run says about its messages.
#[derive(Debug, Default)]
struct Names {
    /// Tenant, publisher, and the shared subscription if there is one.
    text: String,
    tenant: usize,
    publisher: usize,
    is_shared: bool,
    is_v5: bool,
}

impl Names {
    fn copy(&mut self, run: &Run<'_>) {
        let shared = match run.to {
            Destination::Sessions => None,
            Destination::Shared(group) => Some(group),
        };
        self.text.clear();
        self.text.extend([run.tenant, run.publisher, shared.unwrap_or_default()]);
        (self.tenant, self.publisher) = (run.tenant.len(), run.publisher.len());
        (self.is_shared, self.is_v5) = (shared.is_some(), run.is_v5);
    }

    /// Returns the run, without its packets.
    fn as_run(&self, sequence: u64) -> Run<'_> {
        let (tenant, rest) = self.text.split_at(self.tenant);
        let (publisher, group) = rest.split_at(self.publisher);
        let to = if self.is_shared { Destination::Shared(group) } else { Destination::Sessions };
        Run { sequence, tenant, publisher, to, is_v5: self.is_v5, packets: &[] }
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
