//! One byte stream, whether TCP, TLS or WebSocket carries it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use tungstenite::handshake::client::generate_key;
use tungstenite::http::Request;
use tungstenite::{Bytes, Message, WebSocket};

/// Where a broker is and what to wrap the bytes in.
#[derive(Clone)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub tls: Option<Arc<ClientConfig>>,
    /// The path of the WebSocket and the subprotocol, if there is to be one.
    pub websocket: Option<(String, &'static str)>,
}

trait Io: Read + Write {}
impl<T: Read + Write> Io for T {}

/// A connected stream.
pub struct Stream {
    socket: TcpStream,
    io: Box<dyn Io>,
}

impl Stream {
    /// Connects and shakes hands, all within about `timeout` for each step.
    pub fn connect(address: &Address, timeout: Duration) -> anyhow::Result<Self> {
        let Address { host, port, .. } = address;
        let socket = connect_tcp(host, *port, timeout)
            .with_context(|| format!("cannot connect to {host}:{port}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        let io: Box<dyn Io> = match &address.tls {
            None => wrap(socket.try_clone()?, address)?,
            Some(config) => wrap(connect_tls(socket.try_clone()?, host, config)?, address)?,
        };
        Ok(Self { socket, io })
    }

    /// How long a read waits; at least a millisecond.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.io.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.io.flush()
    }
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_tls(
    socket: TcpStream,
    host: &str,
    config: &Arc<ClientConfig>,
) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(host.to_owned())?;
    let connection = ClientConnection::new(config.clone(), name)?;
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| {
            let unknown = error.to_string().contains("UnknownIssuer");
            let error = anyhow!("the TLS handshake failed: {error}");
            if unknown {
                error
                    .context("the broker's certificate is not trusted; see --cafile and --insecure")
            } else {
                error
            }
        })?;
    }
    Ok(stream)
}

fn wrap<S: Read + Write + 'static>(stream: S, address: &Address) -> anyhow::Result<Box<dyn Io>> {
    let Some((path, subprotocol)) = &address.websocket else { return Ok(Box::new(stream)) };
    let scheme = if address.tls.is_some() { "wss" } else { "ws" };
    let host = match &address.host {
        host if host.contains(':') => format!("[{host}]:{}", address.port),
        host => format!("{host}:{}", address.port),
    };
    let request = Request::builder()
        .uri(format!("{scheme}://{host}{path}"))
        .header("Host", &host)
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", generate_key())
        .header("Sec-WebSocket-Protocol", *subprotocol)
        .body(())?;
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(Box::new(WebSocketStream { socket, pending: Bytes::new() })),
        Err(error) => Err(anyhow!("the WebSocket handshake with {path} failed: {error}")),
    }
}

/// A WebSocket as the byte stream it carries: MQTT packets do not align with its messages.
struct WebSocketStream<S> {
    socket: WebSocket<S>,
    pending: Bytes,
}

impl<S: Read + Write> Read for WebSocketStream<S> {
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
                        io::ErrorKind::InvalidData,
                        "the broker sent text over the WebSocket, and MQTT is binary",
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

impl<S: Read + Write> Write for WebSocketStream<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write(Message::Binary(Bytes::copy_from_slice(buf))).map_err(to_io)?;
        Ok(buf.len())
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
