//! Measures the cost of a 1 KiB message on its way through.

use barid_amqp::message::{Builder, Delivered, Field, Sections, State, ValueRef};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn all(criterion: &mut Criterion) {
    let mut message = Vec::new();
    Builder::new()
        .ttl(60_000)
        .annotation("x-opt-partition-key", ValueRef::String("session-42"))
        .property(Field::MessageId, ValueRef::String("2b1a8d0c-7d1f-4f4e-9d0c-0a1b2c3d4e5f"))
        .property(Field::GroupId, ValueRef::String("session-42"))
        .application_property("device", ValueRef::String("sensor"))
        .data(&[b'.'; 1_024], &mut message);
    let delivered = Delivered {
        delivery_count: 0,
        ttl: None,
        enqueued_at: 1_700_000_000_000,
        expires_at: Some(1_700_000_060_000),
        sequence_number: 70_000,
        enqueued_sequence_number: 70_000,
        locked_until: Some(1_700_000_030_000),
        state: State::Active,
        scheduled_at: None,
        dead_letter_source: None,
        lock_token: None,
        changes: &[],
    };
    criterion.bench_function("split", |bencher| {
        bencher.iter(|| {
            let sections = Sections::split(black_box(&message)).expect("a message");
            let properties = sections.properties();
            (properties.group_id().map(str::len), sections.header().ttl)
        });
    });
    let mut out = Vec::new();
    criterion.bench_function("deliver", |bencher| {
        bencher.iter(|| {
            out.clear();
            let sections = Sections::of_known(black_box(&message)).expect("a message");
            delivered.encode(&sections, &mut out);
            out.len()
        });
    });
}

criterion_group!(benches, all);
criterion_main!(benches);
