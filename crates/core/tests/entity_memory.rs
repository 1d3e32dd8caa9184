//! Measures the memory that an entity uses and frees. One test, because the allocator counts for the whole process.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Body, Effects, Entity, Entry, Incoming, Mode, Outcome, Overlay, Part, Properties,
    ReceiverId, SequenceNumber, State,
};
use barid_core::time::WallTime;
use barid_core::value::Scope;
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
        enqueued_at: WallTime::from_millis(0),
        expires_at: None,
        delivery_count: 0,
        state: State::Active,
        body: Body { id: number, size: 1_024, bytes: None },
        overlay: None,
    }
}

/// Effects that store nothing, and keep all bytes in memory.
struct Nothing;

impl Effects for Nothing {
    fn put_body(&mut self, _: u64, _: &Arc<[u8]>) {}
    fn remove_body(&mut self, _: u64) {}
    fn put_entry(&mut self, _: Part, _: &Entry) {}
    fn remove_entry(&mut self, _: Part, _: SequenceNumber) {}
    fn put_state(&mut self, _: &Arc<str>, _: &Arc<[u8]>, _: WallTime) {}
    fn remove_state(&mut self, _: &Arc<str>) {}
    fn put_seen(&mut self, _: &Arc<str>, _: WallTime) {}
    fn remove_seen(&mut self, _: &Arc<str>) {}
    fn put_numbers(&mut self, _: Part, _: SequenceNumber) {}
    fn keeps_in_memory(&self) -> bool {
        true
    }
    fn memory(&mut self, _: usize, _: usize) {}
    fn ready(&mut self, _: ReceiverId) {}
    fn granted(&mut self, _: ReceiverId, _: &Arc<str>, _: WallTime) {}
    fn timed_out(&mut self, _: ReceiverId) {}
    fn lock_lost(&mut self, _: ReceiverId) {}
}

fn properties(requires_session: bool) -> Properties {
    Properties {
        requires_session,
        lock_duration: Duration::from_secs(60),
        max_delivery_count: 10,
        default_time_to_live: None,
        dead_lettering_on_expiration: false,
        duplicate_detection: None,
        max_messages: usize::MAX,
        max_bytes: usize::MAX,
        max_message_size: usize::MAX,
        max_sessions: usize::MAX,
    }
}

fn message(number: usize, session: Option<String>, size: usize) -> Incoming {
    Incoming {
        session: session.map(Arc::from),
        message_id: Some(Arc::from(format!("{number:032x}"))),
        time_to_live: Some(Duration::from_secs(3_600)),
        scheduled_at: None,
        bytes: vec![0; size].into(),
        overlay: None,
    }
}

const NOW: WallTime = WallTime::from_millis(1_000);

/// Grows an entity, and compares its footprint with the memory that it takes.
fn check(what: &str, requires_session: bool, grow: impl FnOnce(&mut Entity)) {
    let before = live_bytes();
    let mut entity = Entity::new(properties(requires_session), 0);
    entity.start(&mut Nothing);
    grow(&mut entity);
    let takes = live_bytes() - before;
    let counts = entity.counts().footprint;
    assert!(
        counts <= 2 * takes && takes <= 2 * counts,
        "{what}: counts {counts}, and takes {takes}"
    );
    black_box(&entity);
}

fn what_counts_is_what_is_taken() {
    const MANY: usize = 20_000;
    for size in [0, 64, 1_024] {
        check(&format!("messages of {size} bytes"), false, |entity| {
            for number in 0..MANY {
                entity.send(message(number, None, size), NOW, &mut Nothing).unwrap();
            }
        });
    }
    check("scheduled messages", false, |entity| {
        for number in 0..MANY {
            let at = Some(WallTime::from_millis(9_000));
            let message = Incoming { scheduled_at: at, ..message(number, None, 64) };
            entity.send(message, NOW, &mut Nothing).unwrap();
        }
    });
    check("locked messages", false, |entity| {
        for number in 0..MANY {
            entity.send(message(number, None, 64), NOW, &mut Nothing).unwrap();
        }
        entity.open(ReceiverId(1), Part::Main, Mode::PeekLock).unwrap();
        entity.take(ReceiverId(1), MANY, NOW, &mut Nothing, &mut Vec::new()).unwrap();
    });
    check("messages with changed properties", false, |entity| {
        for number in 0..MANY / 10 {
            let mut overlay = Overlay::new();
            for name in 0..20 {
                overlay.set(Scope::User, &format!("property-{name}"), "a value".into());
            }
            let overlay = Some(Arc::new(overlay));
            let message = Incoming { overlay, ..message(number, None, 64) };
            entity.send(message, NOW, &mut Nothing).unwrap();
        }
    });
    check("messages of many sessions", true, |entity| {
        for number in 0..MANY {
            let session = Some(format!("session-{number}"));
            entity.send(message(number, session, 64), NOW, &mut Nothing).unwrap();
        }
    });
    check("deferred messages of few sessions", true, |entity| {
        for number in 0..MANY {
            let session = Some(format!("session-{}", number % 10));
            entity.send(message(number, session, 64), NOW, &mut Nothing).unwrap();
        }
        for receiver in 0..10 {
            let session = Accept::Session(format!("session-{receiver}").into());
            let (receiver, mut taken) = (ReceiverId(receiver), Vec::new());
            entity.accept(receiver, Mode::PeekLock, session, NOW, &mut Nothing).unwrap();
            entity.take(receiver, MANY, NOW, &mut Nothing, &mut taken).unwrap();
            for delivery in taken {
                let defer = Outcome::Defer(Vec::new());
                entity.settle(Part::Main, delivery.token, defer, NOW, &mut Nothing).unwrap();
            }
        }
    });
    for size in [1, 1_024] {
        check(&format!("states of {size} bytes"), true, |entity| {
            for number in 0..MANY {
                let session = Accept::Session(format!("session-{number}").into());
                let receiver = ReceiverId(number as u64);
                entity.accept(receiver, Mode::PeekLock, session, NOW, &mut Nothing).unwrap();
                let state = Some(vec![1; size].into());
                entity.set_state(receiver, state, NOW, &mut Nothing).unwrap();
                entity.close(receiver, NOW, &mut Nothing);
            }
        });
    }
    remembered_ids_are_bounded_in_bytes();
}

fn remembered_ids_are_bounded_in_bytes() {
    const MANY: usize = 20_000;
    let before = live_bytes();
    let window = Some(Duration::from_secs(600));
    let mut entity =
        Entity::new(Properties { duplicate_detection: window, ..properties(false) }, 0);
    entity.start(&mut Nothing);
    for number in 0..MANY {
        entity.recover_seen(&format!("{number:064}").into(), WallTime::from_millis(number as u64));
    }
    let each = (live_bytes() - before) / MANY;
    let counted = 64 + barid_core::entity::SEEN_OVERHEAD;
    assert!(counted <= 2 * each && each <= 2 * counted, "an id counts {counted} and takes {each}");
}

#[test]
fn what_is_kept_is_small_and_counted() {
    let before = live_bytes();
    let mut entity = Entity::new(properties(true), 0);
    entity.open(ReceiverId(1), Part::DeadLetter, Mode::PeekLock).expect("it has no sessions");
    assert!(size_of_val(&entity) + live_bytes() - before < EMPTY_MAX);

    for number in 1..=SESSIONS {
        entity.recover_entry(Part::Main, entry(number));
    }
    let each = (live_bytes() - before) / SESSIONS as usize;
    assert!(each < PER_SESSION_MAX, "{each} bytes");
    drop(entity);
    what_counts_is_what_is_taken();
}
