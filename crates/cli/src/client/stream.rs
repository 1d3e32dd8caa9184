//! A byte stream over TCP, TLS or WebSocket.
//!
//! [`Layers`] works with blocking and with non-blocking sockets: the command-line client has one blocking
//! [`Stream`], the benchmarks have thousands of non-blocking sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use tungstenite::handshake::client::{ClientHandshake, generate_key};
use tungstenite::handshake::{HandshakeError, MidHandshake};
use tungstenite::http::Request;
use tungstenite::{Bytes, Message, WebSocket};

use super::failure::Failure;

/// Maximum size of a WebSocket message that is sent, in bytes.
const MESSAGE_MAX: usize = 64 * 1024;

/// Address of a broker, and the layers around the socket.
#[derive(Clone)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub tls: Option<Arc<ClientConfig>>,
    /// Path and subprotocol of the WebSocket, if one is used.
    pub websocket: Option<(String, &'static str)>,
}

impl Address {
    /// Whether the socket carries the bytes without any layer.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none() && self.websocket.is_none()
    }
}

/// A byte stream to read from and write to.
pub trait Io: Read + Write {}
impl<T: Read + Write> Io for T {}

/// A socket with the TLS and WebSocket layers of an [`Address`], and their handshakes.
pub struct Layers {
    websocket: Option<(String, &'static str)>,
    authority: String,
    is_tls: bool,
    stage: Stage,
}

enum Stage {
    /// The TLS handshake is in progress.
    Tls(Box<StreamOwned<ClientConnection, Box<dyn Io>>>),
    /// The stream is connected; the WebSocket handshake, if any, is next.
    Connected(Box<dyn Io>),
    /// The WebSocket handshake is in progress.
    Upgrading(Box<MidHandshake<ClientHandshake<Box<dyn Io>>>>),
    /// Bytes can be read and written.
    Open(Box<dyn Io>),
    /// A handshake has failed.
    Failed,
}

impl Layers {
    /// Creates the layers around a socket that is connected or connecting. Nothing is written yet.
    pub fn around(socket: impl Io + 'static, address: &Address) -> anyhow::Result<Self> {
        let socket: Box<dyn Io> = Box::new(socket);
        let stage = match &address.tls {
            None => Stage::Connected(socket),
            Some(config) => {
                let name = ServerName::try_from(address.host.clone()).with_context(|| {
                    format!("{} is not a valid host name for TLS", address.host)
                })?;
                let connection = ClientConnection::new(config.clone(), name)?;
                Stage::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        let host = match &address.host {
            host if host.contains(':') => format!("[{host}]"),
            host => host.clone(),
        };
        Ok(Self {
            websocket: address.websocket.clone(),
            authority: format!("{host}:{}", address.port),
            is_tls: address.tls.is_some(),
            stage,
        })
    }

    /// Continues the handshakes as far as the socket allows. Returns whether they are done.
    ///
    /// # Errors
    /// A handshake failed. A socket that is not ready is not an error.
    pub fn advance(&mut self) -> anyhow::Result<bool> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Failed) {
                Stage::Tls(mut stream) => match stream.conn.complete_io(&mut stream.sock) {
                    Ok(_) if stream.conn.is_handshaking() => self.stage = Stage::Tls(stream),
                    Ok(_) => self.stage = Stage::Connected(stream),
                    Err(error) if is_not_ready(&error) => {
                        self.stage = Stage::Tls(stream);
                        return Ok(false);
                    }
                    Err(error) => return Err(tls_failed(&error)),
                },
                Stage::Connected(stream) => match &self.websocket {
                    None => self.stage = Stage::Open(stream),
                    Some((path, subprotocol)) => {
                        let request = self.upgrade(path, subprotocol)?;
                        let begun = ClientHandshake::start(stream, request, None)?;
                        self.stage = Stage::Upgrading(Box::new(begun));
                    }
                },
                Stage::Upgrading(handshake) => match handshake.handshake() {
                    Ok((socket, _)) => {
                        let pending = Bytes::new();
                        self.stage = Stage::Open(Box::new(WebSocketStream { socket, pending }));
                    }
                    Err(HandshakeError::Interrupted(handshake)) => {
                        self.stage = Stage::Upgrading(Box::new(handshake));
                        return Ok(false);
                    }
                    Err(HandshakeError::Failure(error)) => {
                        let path = self.websocket.as_ref().map_or("", |(path, _)| path);
                        bail!("the WebSocket handshake with {path} failed: {error}");
                    }
                },
                open @ Stage::Open(_) => {
                    self.stage = open;
                    return Ok(true);
                }
                Stage::Failed => bail!("the handshake has already failed"),
            }
        }
    }

    fn upgrade(&self, path: &str, subprotocol: &str) -> anyhow::Result<Request<()>> {
        let scheme = if self.is_tls { "wss" } else { "ws" };
        Ok(Request::builder()
            .uri(format!("{scheme}://{}{path}", self.authority))
            .header("Host", &self.authority)
            .header("Upgrade", "websocket")
            .header("Connection", "Upgrade")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Sec-WebSocket-Protocol", subprotocol)
            .body(())?)
    }

    /// Returns the stream to read from and write to after the handshakes.
    fn io(&mut self) -> io::Result<&mut dyn Io> {
        match &mut self.stage {
            Stage::Open(io) => Ok(&mut **io),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl Read for Layers {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.io()?.read(buf)
    }
}

impl Write for Layers {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.io()?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.io()?.flush()
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::TimedOut)
}

fn tls_failed(error: &io::Error) -> anyhow::Error {
    let text = error.to_string();
    let failed = anyhow!("the TLS handshake failed: {text}");
    if text.contains("UnknownIssuer") {
        failed.context("the broker's certificate is not trusted; see --cafile and --insecure")
    } else if error.kind() == ErrorKind::UnexpectedEof || text.contains("InvalidContentType") {
        failed.context("the broker does not seem to speak TLS at this port; see -p")
    } else {
        failed
    }
}

/// A connected stream with blocking calls.
pub struct Stream {
    socket: TcpStream,
    layers: Layers,
}

impl Stream {
    /// Connects and performs the handshakes. Each step takes about `timeout` at most.
    pub fn connect(address: &Address, timeout: Duration) -> anyhow::Result<Self> {
        let Address { host, port, .. } = address;
        let socket = connect_tcp(host, *port, timeout)
            .with_context(|| format!("cannot connect to {host}:{port}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        let mut layers = Layers::around(socket.try_clone()?, address)?;
        let deadline = Instant::now() + timeout;
        while !layers.advance()? {
            if Instant::now() >= deadline {
                bail!(Failure::Timeout("the broker did not answer the handshake in time"));
            }
        }
        Ok(Self { socket, layers })
    }

    /// Sets the maximum wait of a read; at least one millisecond.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.layers.read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.layers.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.layers.flush()
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A WebSocket as the byte stream that it carries: MQTT packets are not aligned with its messages.
struct WebSocketStream {
    socket: WebSocket<Box<dyn Io>>,
    pending: Bytes,
}

impl Read for WebSocketStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.pending.is_empty() {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => self.pending = bytes,
                Ok(Message::Close(_))
                | Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => {
                    return Ok(0);
                }
                Ok(Message::Text(_)) => {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "the broker sent a text message over the WebSocket; MQTT and AMQP use binary messages",
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(to_io(error)),
            }
        }
        let len = buf.len().min(self.pending.len());
        buf[..len].copy_from_slice(&self.pending.split_to(len));
        Ok(len)
    }
}

impl Write for WebSocketStream {
    /// Accepts nothing until the socket has taken all earlier bytes. So little data waits here, and a message
    /// is never refused after a part of it was written.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let len = buf.len().min(MESSAGE_MAX);
        let message = Message::Binary(Bytes::copy_from_slice(&buf[..len]));
        match self.socket.write(message).map_err(to_io) {
            // The message waits to be flushed.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(len),
            result => result.map(|()| len),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush().map_err(to_io)
    }
}

fn to_io(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
