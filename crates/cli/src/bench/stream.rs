//! A socket that never blocks, with its buffers.

use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::TcpStream;

/// What each read asks the kernel for.
const READ_BYTES: usize = 64 * 1024;

pub struct Stream {
    pub socket: TcpStream,
    /// What is still to be written, behind what has been.
    pub output: Vec<u8>,
    written: usize,
    /// The beginning of what is still to come.
    input: Vec<u8>,
}

impl Stream {
    pub fn new(socket: TcpStream) -> Self {
        Self { socket, output: Vec::new(), written: 0, input: Vec::new() }
    }

    /// Bytes that the socket has not taken yet.
    pub fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.unwritten() > 0 {
            match self.socket.write(&self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads all there is, and shows it to `take` together with what that has left before; `take`
    /// answers how many bytes it has done with. Answers whether the connection is still open.
    ///
    /// After a read that was not filled there is nothing more, and the call that would say so is
    /// spared. Not so if the connection `is_closing`: its end makes no second event.
    pub fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        is_closing: bool,
        mut take: impl FnMut(&mut Self, &[u8]) -> anyhow::Result<usize>,
    ) -> anyhow::Result<bool> {
        scratch.resize(READ_BYTES, 0);
        loop {
            let read = match self.socket.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_not_ready(&error) => return Ok(true),
                Err(_) => return Ok(false),
            };
            // Almost always what comes lies whole in what was read.
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
            if read < scratch.len() && !is_closing {
                return Ok(true);
            }
        }
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
