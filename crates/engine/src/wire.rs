//! The way of bytes to a client, as a session knows it.

use std::{fmt, io};

/// What any thread may write to.
pub trait Wire: Send + Sync + fmt::Debug {
    /// Writes as many of the bytes as there is room for now, and answers how many that were.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): there is no room. Others: the connection is broken.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
}
