//! Numbers that nobody can foresee.

use uuid::{Builder, Uuid};

/// Who draws them: the operating system, or a simulation. Fills all that it is given.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub fn(&mut [u8]));

impl Random {
    /// So many bytes.
    pub fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }

    /// Any of 2^64.
    pub fn number(self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    /// A UUID of version 4 (RFC 9562 §5.4).
    pub fn uuid(self) -> Uuid {
        Builder::from_random_bytes(self.bytes()).into_uuid()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    /// Other numbers each time.
    pub const COUNTING: Random = Random(|bytes| {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
    });

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let (one, other) = (COUNTING.uuid(), COUNTING.uuid());
        assert_eq!((one.get_version_num(), other.get_version_num()), (4, 4));
        assert_ne!(one, other);
    }
}
