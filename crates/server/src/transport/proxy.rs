//! The PROXY protocol, versions 1 and 2: a load balancer passes on the client's real address.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

use mio::net::TcpStream;
use ppp::{HeaderResult, v1, v2};

/// Maximum length of a header, in bytes: version 2 with room for its extensions.
const HEADER_MAX: usize = 4096;

const V1_PREFIX: &[u8] = b"PROXY ";

/// Maximum length of a version 1 header, in bytes.
const V1_MAX: usize = 107;

/// The beginning of a connection behind a proxy.
#[derive(Debug, PartialEq, Eq)]
pub enum Proxied {
    /// The client's address; `None` if the proxy opened the connection for itself (a health check).
    Client(Option<SocketAddr>),
    /// The header has not arrived completely.
    Incomplete,
}

impl Proxied {
    /// Reads the header from a socket, and no byte after it.
    ///
    /// # Errors
    /// Fails if the connection does not begin with a header, or breaks.
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

/// Returns the length of the header at the start of `bytes`, and the address in it; `None` if the header is
/// not complete.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    let refused = |error: &dyn std::fmt::Display| {
        io::Error::new(ErrorKind::InvalidData, format!("invalid PROXY protocol header: {error}"))
    };
    let Some(length) = header_length(bytes).map_err(|error| refused(&error))? else {
        return Ok(None);
    };
    match HeaderResult::parse(&bytes[..length]) {
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
            Ok(Some((length, client)))
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
            Ok(Some((length, client)))
        }
        HeaderResult::V1(Err(error)) => Err(refused(&error)),
        HeaderResult::V2(Err(error)) => Err(refused(&error)),
    }
}

/// Returns the length of the header; `None` if the header is not complete.
fn header_length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let begins_with = |prefix: &[u8]| {
        let n = prefix.len().min(bytes.len());
        bytes[..n] == prefix[..n]
    };
    if begins_with(V1_PREFIX) {
        let line = &bytes[..bytes.len().min(V1_MAX)];
        return match line.windows(2).position(|end| end == b"\r\n") {
            Some(end) => Ok(Some(end + 2)),
            None if bytes.len() < V1_MAX => Ok(None),
            None => Err("the header line is too long"),
        };
    }
    if !begins_with(v2::PROTOCOL_PREFIX) {
        return Err("the connection does not begin with a header");
    }
    let Some([high, low]) = bytes.get(14..16) else { return Ok(None) };
    let length = 16 + usize::from(u16::from_be_bytes([*high, *low]));
    if length > HEADER_MAX {
        return Err("the header is too long");
    }
    Ok((bytes.len() >= length).then_some(length))
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
        assert!(parse(b"PROXY TCP4 nonsense\r\n").is_err());
    }
}
