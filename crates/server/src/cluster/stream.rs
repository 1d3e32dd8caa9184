//! The byte stream of a link, in plain text or over TLS.

use std::io;
use std::net::TcpStream as StdStream;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The byte stream of a link whose handshake is over.
#[derive(Debug)]
pub enum LinkStream {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

impl LinkStream {
    /// Takes the stream apart, for an IO thread: the socket, which does not block, and the state of TLS. What was written must
    /// have been flushed.
    ///
    /// # Errors
    /// Fails if the runtime cannot give the socket away.
    pub fn into_parts(self) -> io::Result<(StdStream, Option<Box<Connection>>)> {
        match self {
            Self::Plain(socket) => Ok((socket.into_std()?, None)),
            Self::Tls(stream) => {
                let (socket, tls) = match *stream {
                    TlsStream::Client(stream) => {
                        let (socket, tls) = stream.into_inner();
                        (socket, tls.into())
                    }
                    TlsStream::Server(stream) => {
                        let (socket, tls) = stream.into_inner();
                        (socket, tls.into())
                    }
                };
                Ok((socket.into_std()?, Some(Box::new(tls))))
            }
        }
    }
}

impl AsRawFd for LinkStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Plain(socket) => socket.as_raw_fd(),
            Self::Tls(stream) => stream.as_raw_fd(),
        }
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
