//! Memory of connections that have no session yet: anybody can open one, and another one, so they share a bound.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each part of a connection may collect for itself: a usual CONNECT, TLS or WebSocket handshake. So those
/// who want no more are let in, whatever others have collected.
const FREE: usize = 4 * 1024;

/// What all connections without a session have collected together.
#[derive(Debug)]
pub struct Strangers {
    bytes: AtomicUsize,
    most: AtomicUsize,
}

/// What one connection, or its handshake, has collected.
#[derive(Debug)]
pub struct Collected {
    of: Arc<Strangers>,
    /// Bytes that are counted: those beyond [`FREE`].
    counted: usize,
}

impl Strangers {
    /// Nothing has been collected; at most so many bytes will be.
    pub fn new(most: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), most: AtomicUsize::new(most) }
    }

    /// From now on at most so many bytes.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Bytes that have been collected, but for the first 4 KiB of each.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Collected {
    /// Nothing yet.
    pub fn new(of: &Arc<Strangers>) -> Self {
        Self { of: Arc::clone(of), counted: 0 }
    }

    /// It is so many bytes by now.
    ///
    /// # Errors
    /// When they are too many, all others' counted. Then nothing more must be collected.
    pub fn set(&mut self, bytes: usize) -> io::Result<()> {
        let counted = bytes.saturating_sub(FREE);
        let before = std::mem::replace(&mut self.counted, counted);
        if counted <= before {
            self.of.bytes.fetch_sub(before - counted, Ordering::Relaxed);
            return Ok(());
        }
        let more = counted - before;
        let all = self.of.bytes.fetch_add(more, Ordering::Relaxed) + more;
        if all > self.of.most.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                ErrorKind::OutOfMemory,
                "connections without a session have sent more than max_connecting_bytes",
            ));
        }
        Ok(())
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_a_bound_but_for_the_first_bytes_of_each() {
        let strangers = Arc::new(Strangers::new(10_000));
        let mut one = Collected::new(&strangers);
        let mut other = Collected::new(&strangers);
        one.set(FREE + 9_000).unwrap();
        other.set(FREE + 1_000).unwrap();
        assert_eq!(strangers.bytes(), 10_000);
        assert!(other.set(FREE + 1_001).is_err());
        let mut small: Vec<_> = (0..100).map(|_| Collected::new(&strangers)).collect();
        drop(other);
        one.set(FREE + 10_000).unwrap();
        for collected in &mut small {
            collected.set(FREE).unwrap();
        }
        one.set(0).unwrap();
        assert_eq!(strangers.bytes(), 0);
        one.set(FREE + 1).unwrap();
        drop(one);
        assert_eq!(strangers.bytes(), 0);
    }
}
