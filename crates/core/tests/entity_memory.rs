//! What an entity takes of the memory, and what it gives back. One test, because the allocator counts for the
//! whole process.

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{Body, Entity, Entry, Mode, Part, Properties, ReceiverId, State};
use barid_core::time::Timestamp;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SESSIONS: u64 = 100_000;
const PER_SESSION_MAX: usize = 600;
const EMPTY_MAX: usize = 4 * 1024;

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn entry(number: u64) -> Entry {
    Entry {
        number,
        session: Some(Arc::from(format!("device-{number}"))),
        message_id: None,
        enqueued_number: number,
        enqueued_at: Timestamp::from_millis(0),
        expires_at: None,
        delivery_count: 0,
        state: State::Active,
        body: Body { id: number, size: 1_024, bytes: None },
        overlay: None,
    }
}

#[test]
fn sessions_with_one_message_are_small() {
    let before = live_bytes();
    let properties = Properties {
        requires_session: true,
        lock_duration: Duration::from_secs(60),
        max_delivery_count: 10,
        default_time_to_live: None,
        dead_lettering_on_expiration: false,
        duplicate_detection: None,
        max_messages: usize::MAX,
        max_bytes: usize::MAX,
        max_message_size: usize::MAX,
        max_sessions: usize::MAX,
    };
    let mut entity = Entity::new(properties, 0);
    entity.open(ReceiverId(1), Part::DeadLetter, Mode::PeekLock).expect("it has no sessions");
    assert!(size_of_val(&entity) + live_bytes() - before < EMPTY_MAX);

    for number in 1..=SESSIONS {
        entity.recover_entry(Part::Main, entry(number));
    }
    let each = (live_bytes() - before) / SESSIONS as usize;
    assert!(each < PER_SESSION_MAX, "{each} bytes");
}
