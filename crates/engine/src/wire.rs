//! The socket of a client, as a session sees it.

use std::{fmt, io};

/// A socket to which any thread may write.
pub trait Wire: Send + Sync + fmt::Debug {
    /// Writes as many of the bytes as fit now, and returns their number.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): there is no room now. Any other error: the connection is broken.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}
