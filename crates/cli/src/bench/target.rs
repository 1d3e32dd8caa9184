//! The broker to measure: its address, the credentials, and the begin of each connection.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::Context as _;
use mio::{Interest, Registry, Token};

use super::connect;
use super::stream::{Carrier, Stream};
use crate::client::{Address, BrokerArgs, Layers, Protocol};

/// Maximum wait for one address of a host that has several.
const TRY_WITHIN: Duration = Duration::from_secs(3);

/// A broker whose address is resolved.
#[derive(Clone)]
pub struct Target {
    address: Address,
    socket: SocketAddr,
    /// User name.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// The broker to which subscribers connect; `None`: this one.
    subscribers: Option<Box<Self>>,
}

impl Target {
    /// Interprets the flags for a protocol.
    ///
    /// # Errors
    /// The flags contradict each other, a file cannot be read, or the host is not found.
    pub fn new(args: &BrokerArgs, protocol: Protocol) -> anyhow::Result<Self> {
        let address = args.address(protocol)?;
        let (user, password) = match protocol {
            Protocol::Mqtt(version) => args.credentials(version)?,
            Protocol::Amqp => args.username_and_password(),
        };
        let socket = resolve(&address)?;
        Ok(Self { address, socket, user, password, subscribers: None })
    }

    /// Has subscribers connect to another address, `host:port`.
    ///
    /// # Errors
    /// It is no address, or the host is not found.
    pub fn set_subscribers(&mut self, address: &str) -> anyhow::Result<()> {
        let context = || format!("--subscribers {address}: not an address; HOST:PORT is");
        let socket = address.to_socket_addrs().with_context(context)?.next();
        let socket = socket.with_context(context)?;
        self.subscribers = Some(Box::new(Self { socket, ..self.clone() }));
        Ok(())
    }

    /// Returns the broker to which a client connects.
    pub fn of(&self, is_subscriber: bool) -> &Self {
        self.subscribers.as_deref().filter(|_| is_subscriber).unwrap_or(self)
    }

    /// Begins connection number `index`, and registers its socket with `registry`.
    pub fn begin(&self, registry: &Registry, index: usize) -> anyhow::Result<Stream> {
        let mut socket = connect::begin(self.socket, index)
            .with_context(|| format!("cannot connect to {}", self.socket))?;
        registry.register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        if self.address.is_plain() {
            return Ok(Stream::new(socket));
        }
        let fd = socket.as_raw_fd();
        Ok(Stream::carried_by(Box::new(Layers::around(socket, &self.address)?), fd))
    }

    /// Adds the broker's address to the error of a failed connection.
    pub fn unreachable(&self, error: anyhow::Error) -> anyhow::Error {
        let error = self.refused().map_or(error, anyhow::Error::from);
        error.context(format!("cannot connect to the broker at {}", self.socket))
    }

    /// Returns the error of a blocking attempt to connect, if it fails: a non-blocking socket does
    /// not always report one.
    pub fn refused(&self) -> Option<std::io::Error> {
        TcpStream::connect_timeout(&self.socket, TRY_WITHIN).err()
    }

    /// Returns the host as it was given.
    pub fn host(&self) -> &str {
        &self.address.host
    }
}

impl Carrier for Layers {
    fn advance(&mut self) -> anyhow::Result<bool> {
        self.advance()
    }

    fn short_read_is_all(&self) -> bool {
        false
    }
}

/// Resolves the host; of several addresses it returns the first that answers.
fn resolve(Address { host, port, .. }: &Address) -> anyhow::Result<SocketAddr> {
    let context = || format!("cannot resolve the host name {host}");
    let all: Vec<_> = (host.as_str(), *port).to_socket_addrs().with_context(context)?.collect();
    let first = *all.first().with_context(context)?;
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_WITHIN).is_ok();
    Ok(if all.len() == 1 { first } else { all.iter().find(answers).copied().unwrap_or(first) })
}
