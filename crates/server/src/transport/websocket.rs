//! MQTT and AMQP over WebSocket (MQTT 5 §6; AMQP WebSocket Binding 1.0): binary frames whose borders mean
//! nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, OnceLock};

use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response, ServerHandshake};
use tungstenite::handshake::{HandshakeError, MidHandshake};
use tungstenite::http::StatusCode;
use tungstenite::http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Bytes, Message};

use super::Protocol;

/// The subprotocols: of MQTT 3.1.1 and 5, and of MQTT 3.1.
const MQTT: &[&str] = &["mqtt", "mqttv3.1"];

/// The subprotocol of AMQP 1.0.
const AMQP: &[&str] = &["AMQPWSB10"];

/// Where clients of Service Bus expect AMQP.
const AMQP_PATH: &str = "/$servicebus/websocket";

/// Bytes read from the socket at a time.
const READ_BUFFER: usize = 16 * 1024;

/// A WebSocket as a byte stream. Reading drives the handshake.
#[derive(Debug)]
pub struct WebSocket<S: Read + Write> {
    state: State<S>,
    protocol: Arc<OnceLock<Protocol>>,
    /// What the client has sent and nobody has read yet.
    unread: Bytes,
}

#[derive(Debug)]
enum State<S: Read + Write> {
    Handshake(Box<MidHandshake<ServerHandshake<S, Subprotocol>>>),
    Open(Box<tungstenite::WebSocket<S>>),
    Closed,
}

/// Checks path and subprotocol of the upgrade request.
#[derive(Debug)]
struct Subprotocol {
    /// Of MQTT.
    path: String,
    chosen: Arc<OnceLock<Protocol>>,
}

impl<S: Read + Write> WebSocket<S> {
    /// A WebSocket on `path`, whose frames are at most `frame_max` bytes long.
    pub fn new(stream: S, path: &str, frame_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(frame_max))
            .max_frame_size(Some(frame_max));
        let protocol = Arc::<OnceLock<_>>::default();
        let check = Subprotocol { path: path.to_owned(), chosen: Arc::clone(&protocol) };
        let handshake = ServerHandshake::start(stream, check, Some(config));
        Self { state: State::Handshake(Box::new(handshake)), protocol, unread: Bytes::new() }
    }

    /// What the client wants to speak; MQTT, as long as it has not said so.
    pub fn protocol(&self) -> Protocol {
        self.protocol.get().copied().unwrap_or(Protocol::Mqtt)
    }

    /// From now on frames are at most `bytes` bytes long.
    pub fn set_frame_max(&mut self, bytes: usize) {
        if let State::Open(socket) = &mut self.state {
            socket.set_config(|config| {
                config.max_message_size = Some(bytes);
                config.max_frame_size = Some(bytes);
            });
        }
    }

    /// Begins the closing handshake, without waiting for its end.
    pub fn close(&mut self) {
        if let State::Open(socket) = &mut self.state {
            let _ = socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }));
            let _ = socket.flush();
        }
    }

    fn open(&mut self) -> io::Result<&mut tungstenite::WebSocket<S>> {
        if let State::Handshake(_) = self.state {
            let State::Handshake(handshake) = std::mem::replace(&mut self.state, State::Closed)
            else {
                unreachable!("it was just seen")
            };
            match handshake.handshake() {
                Ok(socket) => self.state = State::Open(Box::new(socket)),
                Err(HandshakeError::Interrupted(handshake)) => {
                    self.state = State::Handshake(Box::new(handshake));
                    return Err(ErrorKind::WouldBlock.into());
                }
                Err(HandshakeError::Failure(error)) => return Err(to_io(error)),
            }
        }
        match &mut self.state {
            State::Open(socket) => Ok(socket),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl<S: Read + Write> Read for WebSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            match self.open()?.read() {
                Ok(Message::Binary(bytes)) => self.unread = bytes,
                // Pings are answered by the library; an empty frame carries nothing.
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(Message::Close(_)) => return Ok(0),
                Ok(Message::Text(_) | Message::Frame(_)) => {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "MQTT and AMQP are carried in binary frames (MQTT-6.0.0-1)",
                    ));
                }
                Err(error) => return Err(to_io(error)),
            }
        }
        let n = buffer.len().min(self.unread.len());
        buffer[..n].copy_from_slice(&self.unread.split_to(n));
        Ok(n)
    }
}

impl<S: Read + Write> Write for WebSocket<S> {
    /// Sends the bytes as one frame, once the one before has left.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let socket = self.open()?;
        match socket.write(Message::Binary(Bytes::copy_from_slice(bytes))) {
            Ok(()) => {}
            // The frame is in the library's buffer all the same.
            Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(to_io(error)),
        }
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush().map_err(to_io)
    }
}

impl Callback for Subprotocol {
    fn on_request(
        self,
        request: &Request,
        mut response: Response,
    ) -> Result<Response, ErrorResponse> {
        let path = request.uri().path();
        let (protocol, known) = match path {
            AMQP_PATH => (Protocol::Amqp, AMQP),
            _ if path == self.path => (Protocol::Mqtt, MQTT),
            _ => {
                let reason = format!("MQTT is at {}, AMQP at {AMQP_PATH}", self.path);
                return Err(refusal(StatusCode::NOT_FOUND, &reason));
            }
        };
        let offered = request
            .headers()
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim);
        let chosen = offered.filter_map(|offer| known.iter().find(|ours| **ours == offer)).next();
        let Some(chosen) = chosen else {
            let reason = match protocol {
                Protocol::Mqtt => {
                    "Sec-WebSocket-Protocol must offer the subprotocol mqtt (MQTT-6.0.0-3)"
                }
                Protocol::Amqp => "Sec-WebSocket-Protocol must offer the subprotocol AMQPWSB10",
            };
            return Err(refusal(StatusCode::BAD_REQUEST, reason));
        };
        let _ = self.chosen.set(protocol);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
        Ok(response)
    }
}

fn refusal(status: StatusCode, reason: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(format!("{reason}\n")));
    *response.status_mut() = status;
    response
}

fn to_io(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
            ErrorKind::ConnectionAborted.into()
        }
        error => io::Error::new(ErrorKind::InvalidData, error),
    }
}
