//! MQTT and AMQP over WebSocket (MQTT 5 §6; AMQP WebSocket Binding 1.0): binary frames, whose boundaries mean
//! nothing.

mod frames;
mod handshake;

use std::io::{self, ErrorKind, Read, Write};

use tungstenite::protocol::frame::coding::CloseCode;

pub use frames::{Decoded, Decoder, FrameError};
use frames::{Opcode, put};
pub use handshake::{Handshake, Outcome};

use super::Protocol;
use crate::strangers::Collected;

/// Maximum payload of one frame to the client, in bytes. More output leaves in several frames, so a client
/// that does not read costs no more memory than this.
const FRAME_MAX: usize = 64 * 1024;

/// Maximum capacity of the output buffer that an idle connection keeps, in bytes.
const KEPT_OUTPUT: usize = 1024;

/// Options of a WebSocket listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketOptions {
    /// The path of MQTT.
    pub path: String,
    /// Origins besides the listener's own whose pages may connect; `*`: all origins.
    pub origins: Vec<String>,
    /// Whether the WebSocket is over TLS.
    pub secure: bool,
    /// Whether the listener can be reached from this machine only.
    pub loopback: bool,
}

/// A WebSocket as a byte stream. Reading drives the handshake.
///
/// A call to `read` reads from the stream below once. If that brings no payload, it returns
/// [`ErrorKind::Interrupted`]: there may be more, and the caller decides how long to go on. If the client is
/// a page of a foreign origin, it returns [`ErrorKind::PermissionDenied`].
#[derive(Debug)]
pub struct WebSocket<S> {
    stream: S,
    stage: Stage,
    protocol: Protocol,
    /// Output that the stream has not taken yet: the response to the handshake, then frames.
    output: Vec<u8>,
    written: usize,
    /// Whether the last ping has not been answered yet.
    owes_pong: bool,
    /// Whether the last read did not fill its buffer.
    has_read_all: bool,
}

#[derive(Debug)]
enum Stage {
    Handshake(Box<Opening>),
    Open(Box<Decoder>),
    /// The closing handshake has begun, or the handshake has failed.
    Closed,
}

/// A handshake that is under way.
#[derive(Debug)]
struct Opening {
    handshake: Handshake,
    options: WebSocketOptions,
    collected: Collected,
}

impl<S: Read + Write> WebSocket<S> {
    /// Returns the stream below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Creates a WebSocket whose client has not sent anything yet.
    pub fn new(stream: S, options: WebSocketOptions, collected: Collected) -> Self {
        let opening = Opening { handshake: Handshake::default(), options, collected };
        Self {
            stream,
            stage: Stage::Handshake(Box::new(opening)),
            protocol: Protocol::Mqtt,
            output: Vec::new(),
            written: 0,
            owes_pong: false,
            has_read_all: false,
        }
    }

    /// Returns the protocol that the client has chosen; MQTT until it has chosen one.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether the last read took everything that the stream had.
    pub fn has_read_all(&self) -> bool {
        self.has_read_all
    }

    /// Begins the closing handshake, without waiting for its end.
    pub fn close(&mut self) {
        self.close_with(CloseCode::Normal);
    }

    fn close_with(&mut self, code: CloseCode) {
        if let Stage::Open(_) = self.stage {
            self.stage = Stage::Closed;
            self.owes_pong = false;
            put(Opcode::Close, &u16::from(code).to_be_bytes(), &mut self.output);
            let _ = self.flush();
        }
    }

    /// Decodes `bytes`, which have just been read. Returns the length of the payload, which is now at their
    /// start.
    fn decode(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Stage::Open(decoder) = &mut self.stage else { return Ok(0) };
        match decoder.decode(bytes) {
            Ok(decoded) => {
                self.owes_pong |= decoded.ping;
                if decoded.closed {
                    self.close_with(CloseCode::Normal);
                } else if self.owes_pong {
                    // Output that cannot leave now is flushed later.
                    let _ = self.flush();
                }
                if decoded.payload == 0 { self.no_payload() } else { Ok(decoded.payload) }
            }
            Err(error) => {
                self.close_with(error.close_code());
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    fn no_payload(&self) -> io::Result<usize> {
        match self.stage {
            Stage::Closed => Ok(0),
            Stage::Handshake(_) | Stage::Open(_) => Err(ErrorKind::Interrupted.into()),
        }
    }

    fn write_output(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.output.shrink_to(KEPT_OUTPUT);
        self.written = 0;
        Ok(())
    }
}

impl<S: Read + Write> Read for WebSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Stage::Closed = self.stage {
            return Ok(0);
        }
        let n = self.stream.read(buffer)?;
        self.has_read_all = n < buffer.len();
        if n == 0 {
            return Ok(0);
        }
        let Stage::Handshake(opening) = &mut self.stage else {
            return self.decode(&mut buffer[..n]);
        };
        match opening.handshake.receive(&buffer[..n], &opening.options) {
            Outcome::Incomplete => {
                opening.collected.set(opening.handshake.len())?;
                self.no_payload()
            }
            Outcome::Accepted { protocol, response, rest } => {
                self.protocol = protocol;
                self.output = response;
                self.stage = Stage::Open(Box::default());
                let _ = self.flush();
                let rest_len = rest.len();
                buffer[..rest_len].copy_from_slice(&rest);
                self.decode(&mut buffer[..rest_len])
            }
            Outcome::Refused { response, reason, is_foreign } => {
                self.output = response;
                self.stage = Stage::Closed;
                let _ = self.flush();
                let kind =
                    if is_foreign { ErrorKind::PermissionDenied } else { ErrorKind::InvalidData };
                Err(io::Error::new(kind, reason))
            }
        }
    }
}

impl<S: Read + Write> Write for WebSocket<S> {
    /// Sends the bytes, or as many as fit, as one frame. The frame before must have left.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        match self.stage {
            Stage::Handshake(_) => return Err(ErrorKind::NotConnected.into()),
            Stage::Closed => return Err(ErrorKind::BrokenPipe.into()),
            Stage::Open(_) => {}
        }
        let n = bytes.len().min(FRAME_MAX);
        put(Opcode::Binary, &bytes[..n], &mut self.output);
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_output()?;
        if self.owes_pong
            && let Stage::Open(decoder) = &self.stage
        {
            put(Opcode::Pong, decoder.ping(), &mut self.output);
            self.owes_pong = false;
            self.write_output()?;
        }
        self.stream.flush()
    }
}
