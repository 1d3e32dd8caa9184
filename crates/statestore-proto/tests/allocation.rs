//! Reading allocates memory in proportion to the bytes that exist, whatever lengths they declare. Commands and
//! notifications allocate nothing. This is a single test in a process of its own, because it observes the allocator.

use std::alloc::System;
use std::hint::black_box;

use statestore_proto::{Command, Glob, Notification, Reply};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the bytes that `read` allocates: the minimum of several runs, because the thread of the test runner
/// allocates in between.
fn allocated<T>(read: impl Fn() -> T) -> usize {
    let once = |_| {
        let region = Region::new(ALLOCATOR);
        drop(black_box(read()));
        region.change().bytes_allocated
    };
    (0..5).map(once).min().expect("it was done")
}

#[test]
fn memory_is_bounded_by_the_input() {
    for payload in [
        &b"*2\r\n$3\r\nGET\r\n$1\r\nK\r\n"[..],
        b"*6\r\n$3\r\nSET\r\n$1\r\nK\r\n$1\r\nV\r\n$3\r\nNEX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
        b"*9999999999\r\n$3\r\nGET\r\n$9999999999\r\nK\r\n",
        b"*1\r\n*9999999999\r\n",
        b"*1\r\n*9999999999\r\n$9999999999\r\nK\r\n",
        b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\na\r\n",
        b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$9999999999\r\na\r\n",
    ] {
        assert_eq!(allocated(|| Command::decode(payload)), 0, "{payload:?}");
        assert_eq!(allocated(|| Notification::decode(payload)), 0, "{payload:?}");
        assert_eq!(allocated(|| Reply::decode(payload)), 0, "{payload:?}");
    }
    // The smallest keys take the most memory for their bytes: 16 bytes for 6. A growing vector may be twice as large as
    // necessary, and has allocated smaller buffers before.
    for count in [1, 10, 1_000, 100_000] {
        let page = [b"*1\r\n*99999999\r\n", &b"$0\r\n\r\n".repeat(count)[..]].concat();
        let needed = allocated(|| Reply::decode(&page));
        assert!(needed > 0, "the allocator is watched");
        assert!(needed <= 16 * page.len() + 128, "{needed} for {}", page.len());
        // A class of three bytes in the pattern takes 8 bytes for its token and 32 for its set of bytes.
        let pattern = b"[a]".repeat(count);
        let needed = allocated(|| Glob::parse(&pattern));
        assert!(needed <= 64 * pattern.len() + 512, "{needed} for {}", pattern.len());
    }
}
