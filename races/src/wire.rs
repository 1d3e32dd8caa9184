//! The simulated socket of a client.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use barid_engine::wire::Wire;
use shuttle::sync::{Condvar, Mutex};

/// A simulated socket: the bytes that the client has not read yet, and the free room.
#[derive(Debug)]
pub struct TestWire {
    pipe: Mutex<Pipe>,
    written: Condvar,
}

#[derive(Debug)]
struct Pipe {
    bytes: Vec<u8>,
    room: usize,
    is_blocked: bool,
    has_ended: bool,
}

impl TestWire {
    /// Creates a socket with room for this many bytes.
    pub fn new(room: usize) -> Self {
        let pipe = Pipe { bytes: Vec::new(), room, is_blocked: false, has_ended: false };
        Self { pipe: Mutex::new(pipe), written: Condvar::new() }
    }

    /// Sets the free room to this many bytes.
    pub fn make_room(&self, room: usize) {
        self.pipe.lock().unwrap().room = room;
    }

    /// Whether a reader would have to wait.
    pub fn is_empty(&self) -> bool {
        let pipe = self.pipe.lock().unwrap();
        pipe.is_empty()
    }

    /// Ends the stream: no bytes follow.
    pub fn end(&self) {
        self.pipe.lock().unwrap().has_ended = true;
        self.written.notify_all();
    }

    /// Waits for bytes, for a blocked writer, or for the end of the stream, and sets the free room. Returns all
    /// bytes, and whether a writer waits for room. Returns `None` at the end of the stream.
    pub fn read(&self, room: usize) -> Option<(Vec<u8>, bool)> {
        let mut pipe = self.pipe.lock().unwrap();
        while pipe.is_empty() {
            pipe = self.written.wait(pipe).unwrap();
        }
        if pipe.has_ended && pipe.bytes.is_empty() {
            return None;
        }
        pipe.room = room;
        Some((std::mem::take(&mut pipe.bytes), std::mem::take(&mut pipe.is_blocked)))
    }
}

impl Pipe {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_blocked && !self.has_ended
    }
}

impl Wire for TestWire {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.pipe.lock().unwrap();
        let count = bytes.len().min(pipe.room);
        pipe.room -= count;
        pipe.is_blocked |= count < bytes.len();
        pipe.bytes.extend_from_slice(&bytes[..count]);
        self.written.notify_all();
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }
}

/// The writer that the owner of a connection uses.
pub struct Out(pub Arc<TestWire>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Wire::write(&*self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
