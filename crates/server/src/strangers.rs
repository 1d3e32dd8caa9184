//! Memory of connections that have no session yet. Anyone can open any number of them, so they share one
//! limit.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each part of a connection may buffer without being counted: enough for a usual CONNECT, TLS
/// handshake or WebSocket handshake. So usual clients are admitted no matter how much other connections have
/// buffered.
const FREE: usize = 4 * 1024;

/// Maximum number of refused connections whose refusals are delayed at a time. They take a file descriptor and
/// some 2 KiB each. Further ones are refused at once.
const DELAYED_MAX: usize = 1_000;

/// The bytes that all connections without a session have buffered together, and their limit.
#[derive(Debug)]
pub struct Strangers {
    bytes: AtomicUsize,
    most: AtomicUsize,
    /// Number of refused connections whose refusals are delayed.
    delayed: AtomicUsize,
}

/// A place among the refused connections whose refusals are delayed. Given back when dropped.
#[derive(Debug)]
pub struct Delayed(Arc<Strangers>);

/// The bytes that one connection, or its handshake, has buffered. Releases them on drop.
#[derive(Debug)]
pub struct Collected {
    of: Arc<Strangers>,
    /// Bytes that are counted: those beyond [`FREE`].
    counted: usize,
}

impl Strangers {
    /// Creates an empty count with a limit of `most` bytes.
    pub fn new(most: usize) -> Self {
        let (bytes, most, delayed) =
            (AtomicUsize::new(0), AtomicUsize::new(most), AtomicUsize::new(0));
        Self { bytes, most, delayed }
    }

    /// Changes the limit to `most` bytes.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Bytes buffered by all connections without a session, less the first 4 KiB of each part.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Delayed {
    /// Takes a place, if there is one.
    pub fn new(of: &Arc<Strangers>) -> Option<Self> {
        let place = Self(Arc::clone(of));
        (of.delayed.fetch_add(1, Ordering::Relaxed) < DELAYED_MAX).then_some(place)
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.0.delayed.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Collected {
    /// Creates a count of no bytes.
    pub fn new(of: &Arc<Strangers>) -> Self {
        Self { of: Arc::clone(of), counted: 0 }
    }

    /// Sets the number of bytes that are buffered.
    ///
    /// # Errors
    /// Fails if all connections together exceed the limit. The caller must not buffer anything more then.
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
    fn only_some_refusals_are_delayed_at_a_time() {
        let strangers = Arc::new(Strangers::new(0));
        let mut places: Vec<_> = (0..2 * DELAYED_MAX).map(|_| Delayed::new(&strangers)).collect();
        assert_eq!(places.iter().flatten().count(), DELAYED_MAX);
        places.truncate(1);
        assert!(Delayed::new(&strangers).is_some());
        drop(places);
        assert_eq!(strangers.delayed.load(Ordering::Relaxed), 0);
    }

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
