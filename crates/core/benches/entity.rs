//! Costs of sending, taking and completing a message of 1 KiB, and of asking for the next session. They must not grow
//! with the number of sessions or messages.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Accepted, Effects, Entity, Entry, Incoming, Mode, Outcome, Part, Properties,
    ReceiverId, SequenceNumber,
};
use barid_core::time::WallTime;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const NOW: WallTime = WallTime::from_millis(1);

/// Effects that store nothing, so that only the entity is measured.
struct Unstored;

impl Effects for Unstored {
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

struct World {
    entity: Entity,
    body: Arc<[u8]>,
}

impl World {
    fn new() -> Self {
        let entity = Entity::new(
            Properties {
                requires_session: true,
                lock_duration: Duration::from_secs(60),
                max_delivery_count: 10,
                default_time_to_live: Some(Duration::from_secs(3_600)),
                dead_lettering_on_expiration: true,
                duplicate_detection: None,
                max_messages: usize::MAX,
                max_bytes: usize::MAX,
                max_message_size: 1 << 20,
                max_sessions: usize::MAX,
            },
            0,
        );
        Self { entity, body: Arc::from([0; 1_024]) }
    }

    fn send(&mut self, session: &Arc<str>) {
        let message = Incoming {
            session: Some(Arc::clone(session)),
            message_id: None,
            time_to_live: None,
            scheduled_at: None,
            bytes: Arc::clone(&self.body),
            overlay: None,
        };
        self.entity.send(message, NOW, &mut Unstored).expect("there is room");
    }

    fn accept(&mut self, receiver: ReceiverId, accept: Accept) -> Accepted {
        let accepted = self.entity.accept(receiver, Mode::PeekLock, accept, NOW, &mut Unstored);
        accepted.expect("a session is free")
    }
}

/// Creates an entity with `sessions` sessions and a backlog of `backlog` messages that are distributed over them.
fn with(sessions: u64, backlog: u64) -> (World, Vec<Arc<str>>) {
    let mut world = World::new();
    let ids: Vec<Arc<str>> = (0..sessions).map(|n| Arc::from(format!("device-{n}"))).collect();
    for n in 0..backlog {
        world.send(&ids[(n % sessions) as usize]);
    }
    (world, ids)
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("send, take, complete");
    for sessions in [1, 1_000, 100_000] {
        for backlog in [0, 100_000] {
            let (mut world, ids) = with(sessions, backlog);
            // With a backlog a session is drained from the front while it grows at the end.
            for (n, id) in ids.iter().enumerate() {
                world.accept(ReceiverId(n as u64), Accept::Session(Arc::clone(id)));
            }
            let (mut n, mut out) = (0, Vec::new());
            group.bench_function(format!("{sessions} sessions, {backlog} waiting"), |b| {
                b.iter(|| {
                    // A stride that visits all sessions in an order without locality.
                    n = (n + 7_919) % ids.len();
                    world.send(&ids[n]);
                    let receiver = ReceiverId(n as u64);
                    let taken = world.entity.take(receiver, 1, NOW, &mut Unstored, &mut out);
                    taken.expect("it holds the session");
                    let delivery = out.pop().expect("a message was sent");
                    let (token, done) = (delivery.token, Outcome::Complete);
                    let settled = world.entity.settle(Part::Main, token, done, NOW, &mut Unstored);
                    black_box(settled).expect("it was locked");
                });
            });
        }
    }
    group.finish();
}

fn accept_next(c: &mut Criterion) {
    for sessions in [100, 100_000] {
        let (mut world, _) = with(sessions, sessions);
        let mut n = 0;
        c.bench_function(
            &format!("accept next and close, {sessions} sessions with messages"),
            |b| {
                b.iter(|| {
                    n += 1;
                    let accepted = world.accept(ReceiverId(n), Accept::Next { until: NOW });
                    assert!(matches!(accepted, Accepted::Now { .. }));
                    world.entity.close(ReceiverId(n), NOW, &mut Unstored);
                });
            },
        );
    }
}

/// Measures the recovery of an entity, without reading from the store.
fn recover(c: &mut Criterion) {
    let (world, _) = with(100_000, 100_000);
    let mut entries = Vec::new();
    world.entity.peek(Part::Main, 0, usize::MAX, None, |entry| {
        entries.push(Entry { session: entry.session.as_deref().map(Arc::from), ..entry.clone() });
        true
    });
    let mut group = c.benchmark_group("recover");
    group.sample_size(10).bench_function("100000 sessions with a message each", |b| {
        b.iter_batched(
            || entries.clone(),
            |entries| {
                let mut entity = Entity::new(world.entity.properties().clone(), 0);
                entries.into_iter().for_each(|entry| entity.recover_entry(Part::Main, entry));
                entity
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, messages, accept_next, recover);
criterion_main!(benches);
