//! The four transports: TCP, TLS, WebSocket, WebSocket over TLS. All are non-blocking byte streams, and MQTT
//! and AMQP can be spoken on each. Links between brokers are TCP or TLS.

mod proxy;
mod tls;
mod tls_stream;
pub mod websocket;

use barid_auth::CertificateNames;
use barid_engine::ids::ConnectionId;
use barid_engine::wire::Wire;
pub use proxy::Proxied;
pub use tls::{
    CertificateError, OwnCertificate, Revocations, client_config, is_for, revocations,
    server_config,
};
use tls_stream::TlsStream;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use mio::net::TcpStream;
use parking_lot::RwLock;
use rustls::{ServerConfig, ServerConnection};
use tracing::debug;

use crate::cluster::Relayed;
use crate::strangers::{Collected, Strangers};
use websocket::{WebSocket, WebSocketOptions};

/// A socket that any thread may write to.
#[derive(Clone, Debug)]
pub struct Socket(pub Arc<Tcp>);

/// The protocol spoken over a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1, 3.1.1 or 5.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

/// The settings of a listener that its connections need.
#[derive(Debug)]
pub struct ListenerContext {
    /// `mqtt`, `mqtts`, `ws`, `wss`, `amqp` or `amqps`.
    pub name: &'static str,
    /// The protocol spoken on the listener. On a WebSocket listener this is MQTT, and the subprotocol that
    /// the client chooses decides.
    pub protocol: Protocol,
    /// The listener's address in the settings.
    pub address: SocketAddr,
    /// Whether a PROXY protocol header comes first.
    pub proxy_protocol: bool,
    /// Options of a WebSocket listener; `None`: the listener has no WebSocket.
    pub websocket: Option<WebSocketOptions>,
    /// The certificates of a TLS listener, which may be replaced while it runs; `None`: the listener has no
    /// TLS.
    pub tls: Option<RwLock<Arc<ServerConfig>>>,
    /// Counts the bytes that its connections buffer before they have a session.
    pub strangers: Arc<Strangers>,
}

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The socket of the connection.
    pub socket: TcpStream,
    /// The address of the client, or of the proxy in front of it.
    pub peer: SocketAddr,
    /// The listener that accepted the connection.
    pub listener: Arc<ListenerContext>,
    /// The client, if another broker passes it on.
    pub passed_on: Option<Box<PassedOn>>,
    /// The state of TLS on the link over which it is passed on; `None`: there is none, or the client has not begun it.
    pub tls: Option<Box<rustls::Connection>>,
}

/// A client that is connected to another broker, which passes its bytes on.
#[derive(Debug)]
pub struct PassedOn {
    /// The names in the certificate that the client has shown to that broker.
    pub certificate: Option<CertificateNames>,
    /// Counts the client.
    pub counted: Relayed,
}

/// The parts of a connection that do not depend on the protocol of its client.
#[derive(Debug)]
pub struct Parts {
    /// The number of the connection.
    pub id: ConnectionId,
    /// The socket, for the kernel to watch.
    pub socket: Arc<Tcp>,
    /// The byte stream to read from and to write to.
    pub transport: Transport,
    /// The listener that accepted the connection.
    pub listener: Arc<ListenerContext>,
    /// The address of the client.
    pub peer: SocketAddr,
    /// Bytes that have been read and not been handled.
    pub unread: Vec<u8>,
    /// The client, if another broker passes it on.
    pub passed_on: Option<Box<PassedOn>>,
}

/// A byte stream to a client, or to another broker.
#[derive(Debug)]
pub enum Transport {
    /// TCP.
    Plain(Socket),
    /// TLS over TCP.
    Tls(Box<TlsStream>),
    /// WebSocket over TCP.
    WebSocket(Box<WebSocket<Socket>>),
    /// WebSocket over TLS.
    SecureWebSocket(Box<WebSocket<TlsStream>>),
    /// TLS over TCP between brokers. The certificate of the other side is not that of a client.
    Link(Box<TlsStream>),
}

impl Transport {
    /// Creates the stream that `listener` speaks, over `socket`.
    pub fn new(socket: Arc<Tcp>, listener: &ListenerContext) -> io::Result<Self> {
        let socket = Socket(socket);
        let collected = || Collected::new(&listener.strangers);
        let websocket = listener.websocket.clone();
        let Some(config) = &listener.tls else {
            return Ok(match websocket {
                None => Self::Plain(socket),
                Some(options) => {
                    Self::WebSocket(Box::new(WebSocket::new(socket, options, collected())))
                }
            });
        };
        let config = Arc::clone(&config.read());
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let stream = TlsStream::new(connection, socket, collected());
        Ok(match websocket {
            None => Self::Tls(Box::new(stream)),
            Some(options) => {
                Self::SecureWebSocket(Box::new(WebSocket::new(stream, options, collected())))
            }
        })
    }

    /// Creates the stream of a link to another broker. `tls` is the state of TLS after its handshake.
    pub fn of_link(socket: Arc<Tcp>, tls: Option<Box<rustls::Connection>>) -> Self {
        let socket = Socket(socket);
        match tls {
            None => Self::Plain(socket),
            Some(tls) => Self::Link(Box::new(TlsStream::established(*tls, socket))),
        }
    }

    /// Whether the client of a WebSocket has chosen AMQP.
    pub fn speaks_amqp(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Tls(_) | Self::Link(_) => false,
            Self::WebSocket(stream) => stream.protocol() == Protocol::Amqp,
            Self::SecureWebSocket(stream) => stream.protocol() == Protocol::Amqp,
        }
    }

    /// Returns the certificate that the client has shown and that an authority of the listener has issued, in
    /// DER.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) | Self::WebSocket(_) | Self::Link(_) => None,
            Self::Tls(stream) => stream.client_certificate(),
            Self::SecureWebSocket(stream) => stream.stream().client_certificate(),
        }
    }

    /// Returns the names in the certificate of the client at `peer`, if it has shown one that can be parsed.
    pub fn certificate_names(&self, peer: SocketAddr) -> Option<CertificateNames> {
        let names = CertificateNames::of(self.client_certificate()?);
        if names.is_none() {
            debug!(%peer, "the names in the client's certificate cannot be read");
        }
        names
    }

    /// Returns the socket if any thread may write to it.
    pub fn wire(&self) -> Option<Arc<dyn Wire>> {
        match self {
            Self::Plain(Socket(socket)) => Some(Arc::clone(socket) as Arc<dyn Wire>),
            _ => None,
        }
    }

    /// Whether a read that did not fill its buffer has read all that had arrived.
    pub fn short_read_is_all(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::WebSocket(stream) => stream.has_read_all(),
            Self::Tls(_) | Self::SecureWebSocket(_) | Self::Link(_) => false,
        }
    }

    /// Tells the client that nothing more is sent.
    pub fn close(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(stream) | Self::Link(stream) => stream.close(),
            Self::WebSocket(stream) => stream.close(),
            Self::SecureWebSocket(stream) => stream.close(),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) | Self::Link(stream) => stream.read(buffer),
            Self::WebSocket(stream) => stream.read(buffer),
            Self::SecureWebSocket(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) | Self::Link(stream) => stream.write(bytes),
            Self::WebSocket(stream) => stream.write(bytes),
            Self::SecureWebSocket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) | Self::Link(stream) => stream.flush(),
            Self::WebSocket(stream) => stream.flush(),
            Self::SecureWebSocket(stream) => stream.flush(),
        }
    }
}

/// A TCP socket, to which any thread may write.
#[derive(Debug)]
pub struct Tcp(pub TcpStream);

impl Deref for Tcp {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.0
    }
}

impl Wire for Tcp {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = &self.0;
        Write::write(&mut stream, bytes)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0.0).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Wire::write(&*self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
