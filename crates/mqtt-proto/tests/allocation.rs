//! Decoding allocates memory in proportion to the bytes that exist, whatever lengths they declare, and allocates
//! nothing on the hot path. This is a single test in a process of its own, because it observes the allocator.

use std::alloc::System;

use mqtt_proto::{FixedHeader, MAX_PACKET_LEN, Packet, Publish, Version};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the bytes that `act` allocates: the minimum of several runs, because the thread of the test runner allocates
/// in between.
fn least(mut act: impl FnMut()) -> usize {
    let mut once = || {
        let region = Region::new(ALLOCATOR);
        act();
        region.change().bytes_allocated
    };
    (0..5).map(|_| once()).min().expect("it was done")
}

/// Returns the bytes allocated to decode `bytes`, whether or not they are a valid packet.
fn allocated(version: Version, bytes: &[u8]) -> usize {
    least(|| {
        if let Ok(Some(header)) = FixedHeader::read(bytes, MAX_PACKET_LEN) {
            let body = &bytes[header.header_len..];
            drop(std::hint::black_box(Packet::decode(version, header, body)));
        }
    })
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FixedHeader::put(first, body.len(), &mut bytes).expect("it is short");
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn memory_is_bounded_by_the_input() {
    // Lists are not copied, but read in place.
    for count in [1, 10, 1_000, 100_000] {
        let subscribe = packet(0x82, &[&[0, 1][..], &[0, 1, b'a', 0].repeat(count)].concat());
        let unsubscribe = packet(0xA2, &[&[0, 1][..], &[0, 1, b'a'].repeat(count)].concat());
        for bytes in [subscribe, unsubscribe] {
            assert_eq!(allocated(Version::V3_1_1, &bytes), 0, "{} bytes", bytes.len());
        }
    }
    // Declared lengths that exceed the input: a body of 256 MiB, a string, properties.
    for bytes in [
        &[0x82, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1][..],
        &[0x82, 4, 0, 1, 0xFF, 0xFF],
        &[0x82, 6, 0, 1, 0xFF, 0xFF, 0xFF, 0x7F],
        &[0x10, 9, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0],
    ] {
        assert_eq!(allocated(Version::V5, bytes), 0, "{bytes:02X?}");
    }

    let publish = packet(0x32, b"\0\x03a/b\0\x01\x09\x23\0\x01\x26\0\x01k\0\0payload");
    assert_eq!(allocated(Version::V5, &publish), 0);
    let connect = packet(0x10, b"\0\x04MQTT\x05\xC2\0\x3C\0\0\x01c\0\x01u\0\x01p");
    assert_eq!(allocated(Version::V5, &connect), 0);

    let header = FixedHeader::read(&publish, MAX_PACKET_LEN).unwrap().unwrap();
    let decoded = Publish::decode(Version::V5, header, &publish[header.header_len..]).unwrap();
    let mut out = Vec::with_capacity(publish.len());
    let allocated = least(|| {
        out.clear();
        decoded.encode(Version::V5, &mut out).unwrap();
    });
    assert_eq!(allocated, 0);
    assert_eq!(out, publish);
}
