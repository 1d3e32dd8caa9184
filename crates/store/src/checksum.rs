//! The checksum of everything that this crate writes itself: XXH3, 64 bits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Returns the checksum of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The checksum of bytes that arrive in several pieces.
pub(crate) type Running = xxhash_rust::xxh3::Xxh3;

/// Returns the 128-bit checksum of a whole file, as the lsm engine keeps it for its own files.
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
