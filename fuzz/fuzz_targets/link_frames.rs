//! The frames of links between brokers: what is decoded is encoded to the same frame again.

#![no_main]

use barid_peers::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    while let Ok(Some((frame, len))) = decode(&bytes[at..], 1 << 20) {
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        assert_eq!(decode(&encoded, 1 << 20), Ok(Some((frame, encoded.len()))));
        at += len;
    }
});
