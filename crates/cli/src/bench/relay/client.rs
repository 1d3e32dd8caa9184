//! One connection of the relay: a socket that never blocks, with its buffers.

use std::io::{ErrorKind, Write as _};

use mio::net::TcpStream;
use mqtt_proto::{Packet, Version};

/// A subscriber that has so much unread is sent nothing more: a relay has no queues.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

pub struct Client {
    pub socket: TcpStream,
    pub version: Version,
    /// The beginning of a packet.
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    /// Who gets what this client publishes: known from its first PUBLISH on.
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

    /// Writes `run` `at_once` if nothing waits before it; keeps what the socket does not take.
    pub fn hand(&mut self, run: &[u8], at_once: bool) {
        let mut written = 0;
        if at_once {
            self.flush();
            if self.output.is_empty() {
                written = self.socket.write(run).unwrap_or(0);
            }
        }
        // What is begun is ended, so that the next packet is found.
        if written > 0 || self.output.len() < OUTPUT_BYTES_MAX {
            self.output.extend_from_slice(&run[written..]);
        }
    }

    /// Writes as much as the socket takes. Of a broken one the next read tells.
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
