//! The PROXY protocol, versions 1 and 2: a load balancer tells where the client really comes from.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

use mio::net::TcpStream;
use ppp::{HeaderResult, PartialResult, v1, v2};

/// The longest header that is read: version 2 with room for its extensions.
const HEADER_MAX: usize = 4096;

/// What the beginning of a connection says.
#[derive(Debug, PartialEq, Eq)]
pub enum Proxied {
    /// The client's address; `None` if the proxy speaks for itself (a health check).
    Client(Option<SocketAddr>),
    /// The header is not there yet.
    Incomplete,
}

impl Proxied {
    /// Reads the header from a socket, and nothing behind it.
    ///
    /// # Errors
    /// When the connection does not begin with a header, or breaks.
    pub fn read(socket: &TcpStream) -> io::Result<Self> {
        let mut buffer = [0; HEADER_MAX];
        let available = match socket.peek(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Self::Incomplete),
            Err(error) => return Err(error),
        };
        let Some((length, client)) = parse(&buffer[..available])? else {
            return Ok(Self::Incomplete);
        };
        (&*socket).read_exact(&mut buffer[..length])?;
        Ok(Self::Client(client))
    }
}

/// The length of the header that `bytes` begin with, and the address in it.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let header = HeaderResult::parse(bytes);
    if header.is_incomplete() && bytes.len() < HEADER_MAX {
        return Ok(None);
    }
    let refused = |error: &dyn std::fmt::Display| {
        io::Error::new(ErrorKind::InvalidData, format!("no PROXY protocol header: {error}"))
    };
    match header {
        HeaderResult::V1(Ok(header)) => {
            let client = match header.addresses {
                v1::Addresses::Tcp4(addresses) => {
                    Some(SocketAddr::from((addresses.source_address, addresses.source_port)))
                }
                v1::Addresses::Tcp6(addresses) => {
                    Some(SocketAddr::from((addresses.source_address, addresses.source_port)))
                }
                v1::Addresses::Unknown => None,
            };
            Ok(Some((header.header.len(), client)))
        }
        HeaderResult::V2(Ok(header)) => {
            let client = match (header.command, header.addresses) {
                (v2::Command::Proxy, v2::Addresses::IPv4(addresses)) => {
                    Some(SocketAddr::from((addresses.source_address, addresses.source_port)))
                }
                (v2::Command::Proxy, v2::Addresses::IPv6(addresses)) => {
                    Some(SocketAddr::from((addresses.source_address, addresses.source_port)))
                }
                _ => None,
            };
            Ok(Some((header.len(), client)))
        }
        HeaderResult::V1(Err(error)) => Err(refused(&error)),
        HeaderResult::V2(Err(error)) => Err(refused(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_tells_the_client() {
        let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n";
        let (length, client) = parse(header).unwrap().unwrap();
        assert_eq!((length, client), (header.len(), Some("192.0.2.7:4711".parse().unwrap())));
        let mut more = header.to_vec();
        more.extend_from_slice(&[0x10, 0x0C]);
        assert_eq!(parse(&more).unwrap().unwrap().0, header.len());
        for end in 1..header.len() {
            assert_eq!(parse(&header[..end]).unwrap(), None, "{end}");
        }
    }

    #[test]
    fn version_2_tells_the_client() {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C".to_vec();
        header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x07, 0x5B]);
        let (length, client) = parse(&header).unwrap().unwrap();
        assert_eq!((length, client), (28, Some("192.0.2.7:4711".parse().unwrap())));
        for end in 1..header.len() {
            assert_eq!(parse(&header[..end]).unwrap(), None, "{end}");
        }
        header[12] = 0x20;
        assert_eq!(parse(&header).unwrap().unwrap().1, None, "LOCAL: the proxy itself");
    }

    #[test]
    fn a_connection_without_a_header_is_refused() {
        assert!(parse(b"\x10\x0C\0\x04MQTT\x04\x02\0\x3C\0\0").is_err());
        assert!(parse(&[b'P'; HEADER_MAX]).is_err());
    }
}
