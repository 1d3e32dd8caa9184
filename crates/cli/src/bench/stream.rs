//! A non-blocking socket with its buffers.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd as _, RawFd};

use mio::Registry;
use mio::net::TcpStream;
use mio::unix::SourceFd;

/// Size of a read in bytes.
const READ_BYTES: usize = 64 * 1024;

/// Transport of a stream: the socket, or layers around it.
pub trait Carrier: Read + Write {
    /// Continues the handshakes. Returns whether bytes can be read and written.
    fn advance(&mut self) -> anyhow::Result<bool>;

    /// Whether a read that does not fill the buffer means that there is no more input. This does not hold for
    /// layers, which have buffers of their own.
    fn short_read_is_all(&self) -> bool;
}

impl Carrier for TcpStream {
    fn advance(&mut self) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn short_read_is_all(&self) -> bool {
        true
    }
}

pub struct Stream {
    carrier: Box<dyn Carrier>,
    fd: RawFd,
    is_open: bool,
    /// Output; the first `written` bytes of it have been written.
    pub output: Vec<u8>,
    written: usize,
    /// Beginning of an element that is not yet complete.
    input: Vec<u8>,
}

impl Stream {
    /// Creates a stream that sends the bytes unchanged.
    pub fn new(socket: TcpStream) -> Self {
        let fd = socket.as_raw_fd();
        Self::carried_by(Box::new(socket), fd)
    }

    /// Creates a stream over `carrier`, for the socket with this descriptor.
    pub fn carried_by(carrier: Box<dyn Carrier>, fd: RawFd) -> Self {
        let (output, input) = (Vec::new(), Vec::new());
        Self { carrier, fd, is_open: false, output, written: 0, input }
    }

    /// Stops events of the socket.
    pub fn deregister(&self, registry: &Registry) {
        // Nothing can be done about a socket that cannot be deregistered.
        let _ = registry.deregister(&mut SourceFd(&self.fd));
    }

    /// Returns the number of output bytes that the socket has not taken yet.
    pub fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    fn is_open(&mut self) -> anyhow::Result<bool> {
        self.is_open = self.is_open || self.carrier.advance()?;
        Ok(self.is_open)
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        if !self.is_open()? {
            return Ok(());
        }
        while self.unwritten() > 0 {
            match self.carrier.write(&self.output[self.written..]) {
                // The layers have no room.
                Ok(0) => return Ok(()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        match self.carrier.flush() {
            Err(error) if !is_not_ready(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Reads all input, and passes it to `take` together with the bytes that `take` left before. `take` returns
    /// the number of bytes it has consumed. Returns whether the connection is still open.
    ///
    /// After a read that does not fill the buffer there is nothing more, so the call that would report that is
    /// omitted. This does not hold if the connection `is_closing`: its end causes no second event.
    pub fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        is_closing: bool,
        mut take: impl FnMut(&mut Self, &[u8]) -> anyhow::Result<usize>,
    ) -> anyhow::Result<bool> {
        if !self.is_open()? {
            return Ok(!is_closing);
        }
        scratch.resize(READ_BYTES, 0);
        let stops_short = self.carrier.short_read_is_all() && !is_closing;
        loop {
            let read = match self.carrier.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_not_ready(&error) => return Ok(true),
                Err(_) => return Ok(false),
            };
            // Almost always an element lies whole in what was read.
            if self.input.is_empty() {
                let taken = take(self, &scratch[..read])?;
                self.input.extend_from_slice(&scratch[taken..read]);
            } else {
                let mut input = std::mem::take(&mut self.input);
                input.extend_from_slice(&scratch[..read]);
                let taken = take(self, &input)?;
                input.drain(..taken);
                self.input = input;
            }
            if read < scratch.len() && stops_short {
                return Ok(true);
            }
        }
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
