//! The one checksum of everything that this crate writes itself: XXH3, 64 bits.

/// The checksum of some bytes.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The checksum of bytes that come one after the other.
pub(crate) type Running = xxhash_rust::xxh3::Xxh3;
