//! Finding a few of a million retained messages: `cargo bench -p barid-core --bench retained`.

use std::hint::black_box;

use barid_core::retained::RetainedStore;
use criterion::{Criterion, criterion_group, criterion_main};

const REGIONS: usize = 10;
const VEHICLES: usize = 100_000;

fn million(criterion: &mut Criterion) {
    let mut store = RetainedStore::default();
    for region in 0..REGIONS {
        for vehicle in 0..VEHICLES {
            store.set(&format!("fleet/region-{region}/vehicle-{vehicle:06}/state"), vehicle);
        }
    }
    let mut group = criterion.benchmark_group("retained");
    group.bench_function("set a new one and remove it", |bench| {
        let mut vehicle = 0;
        bench.iter(|| {
            vehicle = (vehicle + 7_919) % VEHICLES;
            let topic = format!("fleet/region-5/vehicle-{vehicle:06}/position");
            store.set(&topic, vehicle);
            store.remove(&topic);
        });
    });
    // The first filter matches one topic, the last one none, and the others ten each.
    for filter in [
        "fleet/region-5/vehicle-054321/state",
        "fleet/+/vehicle-054321/state",
        "+/+/vehicle-054321/#",
        "+/+/vehicle-100000/#",
    ] {
        group.bench_function(filter, |bench| {
            bench.iter(|| {
                store.for_each_match(black_box(filter), |topic, message| {
                    black_box((topic, message));
                });
            });
        });
    }
    group.sample_size(10);
    group.bench_function("fleet/region-5/+/state", |bench| {
        bench.iter(|| {
            store.for_each_match(black_box("fleet/region-5/+/state"), |topic, message| {
                black_box((topic, message));
            });
        });
    });
    group.finish();
}

criterion_group!(benches, million);
criterion_main!(benches);
