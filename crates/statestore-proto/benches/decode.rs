//! Measures the cost of decoding one command, before it is executed.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_proto::{Command, Glob, Hlc, Version};

fn decode(criterion: &mut Criterion) {
    let mut bench = |name: &str, payload: &[u8]| {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| Command::decode(black_box(payload)));
        });
    };
    bench("decode GET", b"*2\r\n$3\r\nGET\r\n$16\r\nsensors/kitchen1\r\n");
    bench("decode SET", b"*3\r\n$3\r\nSET\r\n$16\r\nsensors/kitchen1\r\n$4\r\n21.5\r\n");
    bench(
        "decode SET NEX PX",
        b"*6\r\n$3\r\nSET\r\n$4\r\nlock\r\n$6\r\nholder\r\n$3\r\nNEX\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
    );
}

fn hlc(criterion: &mut Criterion) {
    criterion.bench_function("parse a timestamp and read the clock", |bencher| {
        bencher.iter(|| {
            let received = Hlc::parse(black_box("001696374425000:00000:client")).ok();
            Version::default().next(black_box(1_696_374_425_000), received)
        });
    });
}

fn glob(criterion: &mut Criterion) {
    let glob = Glob::parse(b"sensors/*/temperature");
    criterion.bench_function("match a key of 29 bytes", |bencher| {
        bencher.iter(|| glob.matches(black_box(b"sensors/kitchen-1/temperature")));
    });
}

criterion_group!(benches, decode, hlc, glob);
criterion_main!(benches);
