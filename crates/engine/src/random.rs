//! Random numbers.

use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use uuid::{Builder, Uuid};

/// A source of random numbers: the operating system, or a simulation. The function fills the whole slice.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub fn(&mut [u8]));

impl Random {
    /// Returns random bytes.
    pub fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }

    /// Returns a random number from 0 to 2^64 - 1.
    pub fn number(self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    /// Creates a hasher for texts that clients choose. Clients know neither of its two seeds, so they cannot
    /// choose texts that fall into one bucket.
    pub fn hasher(self) -> SeedableRandomState {
        static SHARED: OnceLock<SharedSeed> = OnceLock::new();
        let shared = SHARED.get_or_init(|| SharedSeed::from_u64(self.number()));
        SeedableRandomState::with_seed(self.number(), shared)
    }

    /// Returns a random UUID, of version 4 (RFC 9562 §5.4).
    pub fn uuid(self) -> Uuid {
        Builder::from_random_bytes(self.bytes()).into_uuid()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A source that gives other numbers each time.
    pub const COUNTING: Random = Random(|bytes| {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        bytes.iter_mut().zip(number.into_iter().cycle()).for_each(|(byte, of)| *byte = of);
    });

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let (one, other) = (COUNTING.uuid(), COUNTING.uuid());
        assert_eq!((one.get_version_num(), other.get_version_num()), (4, 4));
        assert_ne!(one, other);
    }
}
