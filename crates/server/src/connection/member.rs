//! A connection to or from another broker that carries messages, as an IO thread handles it.
//!
//! The handshake is over when an IO thread gets the connection. The frames are those of `barid-peers`.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use barid_core::time::MonoTime;
use barid_engine::ids::ConnectionId;
use barid_engine::links::{Carrier, Handled, Side};
use barid_engine::owner::Owner;
use tokio::sync::oneshot;
use tracing::warn;

use crate::transport::{Tcp, Transport};
use crate::turn::{IoTurn, Next, Readiness};

/// Maximum number of reads in one turn.
const READS: usize = 4;

/// A connection of a message link.
#[derive(Debug)]
pub struct MemberConnection {
    id: ConnectionId,
    socket: Arc<Tcp>,
    transport: Transport,
    carrier: Carrier,
    /// Bytes that were read and not handled: a frame that has not arrived as a whole, and frames for which the turn was too
    /// short.
    unread: Vec<u8>,
    /// Whether the turn was too short.
    is_interrupted: bool,
    lost: Lost,
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
            carrier: Carrier::new(side),
            unread,
            is_interrupted: false,
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
        self.carrier.begin(owner, self.id);
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

    /// Returns the time by which the connection needs a turn at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        self.carrier.deadline()
    }

    /// Ends the connection.
    pub fn on_close(&mut self) -> Next {
        self.gone()
    }

    /// Whether another connection has taken the place of this one.
    fn is_replaced(&self) -> bool {
        self.carrier.is_replaced(self.id)
    }

    fn gone(&mut self) -> Next {
        self.carrier.end(self.id);
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
        let handled = self.carrier.handle(&mut turn.turn, bytes);
        let Handled { len, is_interrupted } = handled.map_err(broken)?;
        self.is_interrupted = is_interrupted;
        Ok(len)
    }

    fn write(&mut self, turn: &mut IoTurn<'_>) -> io::Result<()> {
        let transport = &mut self.transport;
        // TLS may have bytes that the socket has not taken.
        unless_blocked(transport.flush(), ())?;
        let context = &turn.turn.context;
        let at = (context.engine.shards.sources(), context.worker.now);
        self.carrier.write(at, |bytes| write_all(transport, bytes))
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

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
