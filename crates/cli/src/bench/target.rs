//! The broker to measure: where it is, who we are there, and how each connection to it begins.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::Context as _;
use mio::{Interest, Registry, Token};

use super::connect;
use super::stream::{Carrier, Stream};
use crate::client::{Address, BrokerArgs, Layers, Protocol};

/// How long one address of a host with several may take to answer.
const TRY_WITHIN: Duration = Duration::from_secs(3);

/// A broker whose addresses are known.
#[derive(Clone)]
pub struct Target {
    address: Address,
    socket: SocketAddr,
    /// User name.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
}

impl Target {
    /// What the flags mean for a protocol.
    ///
    /// # Errors
    /// They contradict each other, a file cannot be read, or the host is not found.
    pub fn new(args: &BrokerArgs, protocol: Protocol) -> anyhow::Result<Self> {
        let address = args.address(protocol)?;
        let (user, password) = match protocol {
            Protocol::Mqtt(version) => args.credentials(version)?,
            Protocol::Amqp => args.username_and_password(),
        };
        let socket = resolve(&address)?;
        Ok(Self { address, socket, user, password })
    }

    /// Begins the connection number `index`, and has `registry` tell of it.
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

    /// Says where the broker is that could not be connected to, and why.
    pub fn unreachable(&self, error: anyhow::Error) -> anyhow::Error {
        let error = self.refused().map_or(error, anyhow::Error::from);
        error.context(format!("cannot connect to the broker at {}", self.socket))
    }

    /// Why nobody can connect, if that is so: a socket that does not block does not always say.
    pub fn refused(&self) -> Option<std::io::Error> {
        TcpStream::connect_timeout(&self.socket, TRY_WITHIN).err()
    }

    /// The host, as it was given.
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

/// The address of the host; of several the first that answers.
fn resolve(Address { host, port, .. }: &Address) -> anyhow::Result<SocketAddr> {
    let context = || format!("cannot find {host}");
    let all: Vec<_> = (host.as_str(), *port).to_socket_addrs().with_context(context)?.collect();
    let first = *all.first().with_context(context)?;
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_WITHIN).is_ok();
    Ok(if all.len() == 1 { first } else { all.iter().find(answers).copied().unwrap_or(first) })
}
