//! One connection of the relay: a non-blocking socket with its buffers.

use std::io::{ErrorKind, Write as _};

use mio::net::TcpStream;
use mqtt_proto::{Packet, Version};

/// Unread output, in bytes, above which a subscriber is sent nothing more: a relay has no queues.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

pub struct Client {
    pub socket: TcpStream,
    pub version: Version,
    /// Beginning of a packet that is not yet complete.
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    /// Subscribers of what this client publishes; determined by its first PUBLISH.
    pub receivers: Option<Vec<usize>>,
}

impl Client {
    pub fn new(socket: TcpStream) -> Self {
        let version = Version::V3_1_1;
        Self { socket, version, input: Vec::new(), output: Vec::new(), receivers: None }
    }

    pub fn send(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        Ok(packet.encode(self.version, &mut self.output)?)
    }

    /// Writes `run` immediately if `at_once` is set and no output waits; keeps the bytes that the
    /// socket does not take.
    pub fn hand(&mut self, run: &[u8], at_once: bool) {
        let mut written = 0;
        if at_once {
            self.flush();
            if self.output.is_empty() {
                written = self.socket.write(run).unwrap_or(0);
            }
        }
        // A packet that is partly written is completed, so that the receiver finds the next one.
        if written > 0 || self.output.len() < OUTPUT_BYTES_MAX {
            self.output.extend_from_slice(&run[written..]);
        }
    }

    /// Writes as much as the socket takes. An error is left to the next read.
    pub fn flush(&mut self) {
        let mut written = 0;
        while written < self.output.len() {
            match self.socket.write(&self.output[written..]) {
                Ok(n) => written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.output.drain(..written);
    }
}
