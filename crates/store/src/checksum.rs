//! The one checksum of everything that this crate writes itself: XXH3, 64 bits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The checksum of some bytes.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The checksum of bytes that come one after the other.
pub(crate) type Running = xxhash_rust::xxh3::Xxh3;

/// The checksum of 128 bits of a whole file: what the engine has of its own files.
pub(crate) fn of_file(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut running = Running::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(running.digest128()),
            read => running.update(&buffer[..read]),
        }
    }
}
