//! The simulated socket of a client, and the posts to the owner of its connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use barid_engine::ids::ConnectionId;
use barid_engine::owner::{Farewell, Owner};
use barid_engine::wire::Wire;
use mqtt_proto::ReasonCode;
use parking_lot::Mutex;

/// Bytes that the broker can write to a client before its writes block.
pub const ROOM: usize = 600;

/// A simulated socket, which takes a limited number of bytes.
#[derive(Debug, Default)]
pub struct SimWire(Mutex<Pipe>);

#[derive(Debug)]
struct Pipe {
    bytes: Vec<u8>,
    room: usize,
    is_blocked: bool,
}

impl Default for Pipe {
    fn default() -> Self {
        Self { bytes: Vec::new(), room: ROOM, is_blocked: false }
    }
}

impl SimWire {
    /// Calls `take` with the bytes that were written. It returns the number of bytes that it has taken from the
    /// beginning.
    pub fn take(&self, take: impl FnOnce(&[u8]) -> usize) {
        let mut pipe = self.0.lock();
        let taken = take(&pipe.bytes);
        pipe.bytes.drain(..taken);
    }

    /// Whether a write found too little room.
    pub fn is_blocked(&self) -> bool {
        self.0.lock().is_blocked
    }

    /// Whether no bytes wait to be taken, and no write waits for room.
    pub fn is_quiet(&self) -> bool {
        let pipe = self.0.lock();
        pipe.bytes.is_empty() && !pipe.is_blocked
    }

    /// Sets the free room to this many bytes, and clears the blocked state.
    pub fn make_room(&self, room: usize) {
        let mut pipe = self.0.lock();
        (pipe.room, pipe.is_blocked) = (room, false);
    }
}

impl Wire for SimWire {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.0.lock();
        let count = bytes.len().min(pipe.room);
        if count < bytes.len() {
            pipe.is_blocked = true;
        }
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        pipe.room -= count;
        pipe.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

/// The writer that the owner of a connection uses.
pub struct Out(pub Arc<SimWire>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Wire::write(&*self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Posts to the owner of connections, the oldest first.
#[derive(Debug, Default)]
pub struct Posts(Mutex<VecDeque<Post>>);

/// A request to the owner of a connection.
#[derive(Debug)]
pub enum Post {
    Drain(ConnectionId),
    Close(ConnectionId, ReasonCode, Farewell),
}

impl Posts {
    /// Removes and returns the oldest post.
    pub fn take(&self) -> Option<Post> {
        self.0.lock().pop_front()
    }

    /// Whether there are no posts.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Owner for Posts {
    fn drain(&self, connection: ConnectionId) {
        self.0.lock().push_back(Post::Drain(connection));
    }

    fn close(&self, connection: ConnectionId, reason: ReasonCode, farewell: Farewell) {
        self.0.lock().push_back(Post::Close(connection, reason, farewell));
    }
}
