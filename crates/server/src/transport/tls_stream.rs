//! TLS over a socket.
//!
//! Differences from the streams of the library:
//!
//! - Writing never reads. The kernel reports incoming bytes only once, so only the code that reads may take
//!   them off the socket.
//! - Output that the socket does not take does not prevent reading.
//! - A call to `read` reads from the socket once. If a peer sends records without data one after another, the
//!   caller decides how long to go on.

use std::io::{self, ErrorKind, Read, Write};

use rustls::{Connection, ServerConnection};

use super::Socket;
use crate::strangers::Collected;

/// Bytes that are read at a time during a handshake.
const HANDSHAKE_READ: usize = 4 * 1024;

/// Maximum number of TLS records in a client's part of a handshake. Half a dozen are usual, and a chain of
/// certificates in records of 512 bytes takes some more. The library's work grows with the square of their
/// number, so a handshake in more records is refused.
const HANDSHAKE_RECORDS_MAX: usize = 256;

/// A TLS connection with its socket.
#[derive(Debug)]
pub struct TlsStream {
    connection: Connection,
    socket: Socket,
    /// The count of what the client has sent; `None` after the handshake.
    handshake: Option<Box<Handshake>>,
}

/// Counts the bytes and records that a client sends during the handshake.
#[derive(Debug)]
struct Handshake {
    /// All bytes so far. The library may buffer all of them.
    bytes: usize,
    collected: Collected,
    records: usize,
    /// Number of bytes of the next record's header that have arrived (RFC 8446 §5.1).
    header_len: usize,
    /// Number of bytes of the record that are still to come, from the last two bytes of its header.
    rest: usize,
}

impl TlsStream {
    pub(super) fn new(connection: ServerConnection, socket: Socket, collected: Collected) -> Self {
        let handshake = Some(Box::new(Handshake::new(collected)));
        Self { connection: connection.into(), socket, handshake }
    }

    /// Creates the stream of a connection whose handshake is over.
    pub(super) fn established(connection: Connection, socket: Socket) -> Self {
        Self { connection, socket, handshake: None }
    }

    /// Returns the verified certificate of the client, in DER.
    pub(super) fn client_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(|certificate| &**certificate)
    }

    /// Reads from the socket once, and passes what has arrived to the library.
    fn read_records(&mut self) -> io::Result<()> {
        let Some(handshake) = &mut self.handshake else {
            self.connection.read_tls(&mut self.socket)?;
            return self.process();
        };
        let mut chunk = [0; HANDSHAKE_READ];
        let n = self.socket.read(&mut chunk)?;
        handshake.count(&chunk[..n])?;
        let mut unread = &chunk[..n];
        // At least once, because the library detects the end of the stream by an empty read.
        loop {
            self.connection.read_tls(&mut unread)?;
            self.process()?;
            if unread.is_empty() {
                break;
            }
        }
        if !self.connection.is_handshaking() {
            self.handshake = None;
        }
        Ok(())
    }

    fn process(&mut self) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        // Sends the response: a part of the handshake, or an alert. What the socket does not take now is
        // flushed later.
        let _ = self.flush();
        processed.map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Tells the client that nothing more is sent.
    pub(super) fn close(&mut self) {
        self.connection.send_close_notify();
        let _ = self.flush();
    }
}

impl Handshake {
    fn new(collected: Collected) -> Self {
        Self { bytes: 0, collected, records: 0, header_len: 0, rest: 0 }
    }

    fn count(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        const HEADER: usize = 5;
        self.bytes += bytes.len();
        self.collected.set(self.bytes)?;
        while let [first, after @ ..] = bytes {
            if self.header_len == HEADER {
                let here = self.rest.min(bytes.len());
                bytes = &bytes[here..];
                self.rest -= here;
                if self.rest == 0 {
                    self.header_len = 0;
                }
                continue;
            }
            if self.header_len == 0 {
                self.rest = 0;
                self.records += 1;
            }
            self.header_len += 1;
            if self.header_len > HEADER - 2 {
                self.rest = self.rest << 8 | usize::from(*first);
            }
            bytes = after;
        }
        if self.records > HANDSHAKE_RECORDS_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the TLS handshake has too many records",
            ));
        }
        Ok(())
    }
}

impl Read for TlsStream {
    /// Returns [`ErrorKind::Interrupted`] if bytes have arrived that contained no data. There may be more.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.connection.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        self.read_records()?;
        match self.connection.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::Interrupted.into())
            }
            read => read,
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.connection.writer().write(bytes)?;
        // The bytes have been taken. The next call reports an error of the socket.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::strangers::Strangers;

    fn records(lengths: impl IntoIterator<Item = u16>) -> Vec<u8> {
        let record = |length: u16| {
            let header = [&[22, 3, 3][..], &length.to_be_bytes()].concat();
            [header, vec![0; usize::from(length)]].concat()
        };
        lengths.into_iter().flat_map(record).collect()
    }

    fn handshake() -> Handshake {
        Handshake::new(Collected::new(&Arc::new(Strangers::new(usize::MAX))))
    }

    #[test]
    fn records_are_counted_however_they_are_cut() {
        let sent = records([0, 1, 300, 0, 0x1234, 5]);
        for cut in 1..20 {
            let mut handshake = handshake();
            sent.chunks(cut).for_each(|chunk| handshake.count(chunk).unwrap());
            assert_eq!((handshake.records, handshake.bytes), (6, sent.len()), "{cut}");
        }
    }

    #[test]
    fn a_handshake_in_very_many_records_is_refused() {
        let mut handshake = handshake();
        handshake.count(&records([1; HANDSHAKE_RECORDS_MAX])).unwrap();
        assert!(handshake.count(&records([1])).is_err());
    }
}
