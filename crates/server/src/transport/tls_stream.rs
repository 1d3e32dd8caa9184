//! TLS over a socket.
//!
//! Unlike the streams of the library, writing never reads: the kernel tells of what has come only once, and
//! only whoever reads may take it off the socket. Nor does what cannot be written keep anybody from reading.

use std::io::{self, ErrorKind, Read, Write};

use rustls::ServerConnection;

use super::Socket;

/// A TLS connection with its socket.
#[derive(Debug)]
pub struct TlsStream {
    connection: ServerConnection,
    socket: Socket,
}

impl TlsStream {
    pub(super) fn new(connection: ServerConnection, socket: Socket) -> Self {
        Self { connection, socket }
    }

    /// Lets the client know that nothing more comes.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
        let _ = self.flush();
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.connection.read_tls(&mut self.socket)?;
            let processed = self.connection.process_new_packets();
            // What answers it, in a handshake or as an alert. What does not leave now is flushed later.
            let _ = self.flush();
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.connection.writer().write(bytes)?;
        // It has been taken: what is wrong with the socket, the next call says.
        let _ = self.flush();
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
