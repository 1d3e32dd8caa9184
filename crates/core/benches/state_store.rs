//! SET and GET among 100,000 keys with values of 64 bytes.

use std::hint::black_box;
use std::sync::Arc;

use barid_core::durable::Shard;
use barid_core::ids::{PacketId, SessionNumber, TenantNumber};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_core::state_store::{
    Clock, Effects, Limits, Partition, Request, Scope, Set, Usage, Watcher,
};
use barid_core::time::WallTime;
use criterion::{Criterion, criterion_group, criterion_main};
use statestore_proto::{Condition, Notification, Version};

const KEYS: u64 = 100_000;
const TENANT: TenantNumber = TenantNumber(0);

#[derive(Clone)]
struct Nobody;

impl Watcher for Nobody {
    fn id(&self) -> u64 {
        0
    }
}

/// Notes changes as the broker does. From time to time the batch is taken and discarded.
struct Noted(Shard);

impl Noted {
    fn noted(&mut self) -> u64 {
        if self.0.pending().len() > 2_000 {
            let (_, mut batch) = self.0.take();
            batch.clear();
            self.0.reuse(batch);
        }
        self.0.batch()
    }
}

impl Effects<Nobody> for Noted {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        self.0.put_state(TENANT, key, record);
        self.0.batch()
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        self.0.remove_state(TENANT, key);
        self.0.batch()
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        self.0.put_state_clock(TENANT, version);
        self.noted()
    }

    fn put_answered(&mut self, of: SessionNumber, id: PacketId, record: AnsweredRecord) -> u64 {
        self.0.put_answered(TENANT, of, id, record);
        self.0.batch()
    }

    fn remove_answered(&mut self, of: SessionNumber, id: PacketId) {
        self.0.remove_answered(TENANT, of, id);
    }

    fn notify(&mut self, _: &[Nobody], _: &[u8], _: Notification<'_>, _: Version, _: Option<u64>) {}
}

fn key(number: u64) -> String {
    format!("factory/line-{}/machine-{number:06}", number % 20)
}

fn state_store(criterion: &mut Criterion) {
    let (clock, usage, limits) = (Clock::default(), Usage::default(), Limits::UNBOUNDED);
    let now = WallTime::from_millis(1_700_000_000_000);
    let scope = Scope { clock: &clock, usage: &usage, limits: &limits, now };
    let mut partition = Partition::default();
    let mut effects = Noted(Shard::new(0));
    let timestamp = Some("001700000000000:00000:client");
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let value = [7; 64];
    let mut set = |at: usize, stored: bool| {
        let request = Request { timestamp, stored, ..Request::default() };
        let (key, condition) = (keys[at].as_bytes(), Condition::Always);
        let set = Set { key, value: &value, condition, ttl: None };
        partition.set(&scope, &request, &set, &mut effects)
    };
    for at in 0..keys.len() {
        set(at, true);
    }
    let mut at = 0;
    let mut next = || {
        at = (at + 7_919) % keys.len();
        at
    };
    let mut group = criterion.benchmark_group("state_store");
    group.bench_function("set", |bencher| bencher.iter(|| black_box(set(next(), true))));
    group.bench_function("get", |bencher| {
        bencher.iter(|| black_box(partition.get(&scope, keys[next()].as_bytes(), &mut effects)));
    });
    group.finish();
}

criterion_group!(benches, state_store);
criterion_main!(benches);
