//! Sockets that connect without blocking.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Number of connections to one port that one source address has ports for, approximately.
const PER_SOURCE: usize = 20_000;

/// Begins connection number `index`.
///
/// The first connections come from the address that the system chooses. If the broker is on this
/// machine, the others come from 127.1.0.1 and the addresses after it.
pub fn begin(address: SocketAddr, index: usize) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let (IpAddr::V4(ip), source @ 1..) = (address.ip(), index / PER_SOURCE)
        && ip.is_loopback()
    {
        let source = Ipv4Addr::new(127, 1, (source / 250) as u8, (source % 250) as u8 + 1);
        socket.bind(&SockAddr::from(SocketAddr::from((source, 0))))?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}
