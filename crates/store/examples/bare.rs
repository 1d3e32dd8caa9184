//! The cost of the disk engine by itself, and the speed of the disk: a lower bound for the cost of a broker on the same
//! machine.
//!
//! ```text
//! cargo run --release -p barid-store --example bare -- --batch 256 --size 1024 --count 200000 --dir DIR
//! ```
//!
//! A message is a payload under a key of 20 bytes, and an entry of 60 bytes under a key of 28 bytes. CPU time is that
//! of the whole process, including the engine's own threads.

#![allow(clippy::unwrap_used)]

use barid_store::{Batch, DataDir, Keyspace, Options, Store};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MESSAGES: Keyspace = Keyspace(0);
const ENTRIES: Keyspace = Keyspace(1);

struct Settings {
    batch: u64,
    size: usize,
    count: u64,
    dir: PathBuf,
}

fn settings() -> Settings {
    let mut settings =
        Settings { batch: 256, size: 1024, count: 200_000, dir: PathBuf::from("bare-data") };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--batch" => settings.batch = value.parse().unwrap(),
            "--size" => settings.size = value.parse().unwrap(),
            "--count" => settings.count = value.parse().unwrap(),
            "--dir" => settings.dir = value.into(),
            _ => panic!("--batch, --size, --count and --dir are known, {name} is not"),
        }
    }
    settings
}

fn main() {
    let settings = settings();
    assert!(!settings.dir.exists(), "{} exists; name a new directory", settings.dir.display());
    std::fs::create_dir_all(&settings.dir).unwrap();
    disk(&settings.dir, settings.batch * settings.size as u64);
    engine(&settings);
    std::fs::remove_dir_all(&settings.dir).unwrap();
}

/// Measures the disk without an engine: write and fdatasync of as many bytes as a batch has, and large writes.
fn disk(dir: &Path, batch_bytes: u64) {
    let path = dir.join("raw");
    let file = File::create(&path).unwrap();
    let sync = |name: &str, bytes: u64| {
        let data = noise(bytes as usize);
        let mut latencies: Vec<Duration> = (0..300)
            .map(|i| {
                file.write_all_at(&data, i * bytes).unwrap();
                let start = Instant::now();
                file.sync_data().unwrap();
                start.elapsed()
            })
            .collect();
        latencies.sort();
        let (p50, p99) = (latencies[150].as_secs_f64() * 1e3, latencies[297].as_secs_f64() * 1e3);
        println!("fdatasync after {name}: p50 {p50:.3} ms, p99 {p99:.3} ms");
    };
    sync("4 KiB", 4096);
    sync("a batch", batch_bytes);
    let data = noise(8 << 20);
    let (start, times) = (Instant::now(), 64);
    (0..times).for_each(|i| file.write_all_at(&data, i * data.len() as u64).unwrap());
    file.sync_data().unwrap();
    let rate = (times as f64 * 8.0) / start.elapsed().as_secs_f64();
    println!("write bandwidth: {rate:.0} MiB/s");
    std::fs::remove_file(path).unwrap();
}

fn engine(settings: &Settings) {
    let options =
        Options { shards: Some(1), keyspaces: &["messages", "entries"], ..Options::default() };
    let data = DataDir::open(&settings.dir.join("data"), &options).unwrap();
    let store = &*data.shards()[0];
    let payloads = noise(settings.size + (1 << 20));
    let mut batch = Batch::new();
    measure("stored", settings, |from, to| {
        batch.clear();
        for i in from..to {
            let at = (i * 7919 % (1 << 20)) as usize;
            batch.put(MESSAGES, &message_key(i), &payloads[at..at + settings.size]);
            batch.put(ENTRIES, &entry_key(i), &payloads[..60]);
        }
        store.commit(&batch).unwrap();
    });
    println!("on disk: {} MiB", settle(store) >> 20);
    measure("removed", settings, |from, to| {
        batch.clear();
        for i in from..to {
            batch.remove(MESSAGES, &message_key(i));
            batch.remove(ENTRIES, &entry_key(i));
        }
        store.commit(&batch).unwrap();
    });
    println!("on disk: {} MiB", settle(store) >> 20);
}

/// Calls `commit` with consecutive ranges of messages, one batch each, and measures the time.
fn measure(name: &str, settings: &Settings, mut commit: impl FnMut(u64, u64)) {
    let (cpu_before, start) = (cpu(), Instant::now());
    let mut from = 0;
    while from < settings.count {
        let to = (from + settings.batch).min(settings.count);
        commit(from, to);
        from = to;
    }
    let rate = settings.count as f64 / start.elapsed().as_secs_f64();
    // Work that the engine deferred is part of its cost.
    std::thread::sleep(Duration::from_secs(2));
    let cpu = (cpu() - cpu_before).as_secs_f64() * 1e6 / settings.count as f64;
    println!("{name}: {rate:.0}/s, {cpu:.2} µs CPU each");
}

/// Returns the size on disk when it no longer changes.
fn settle(store: &dyn Store) -> u64 {
    let mut size = store.disk_bytes();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = store.disk_bytes();
        if now == size {
            return size;
        }
        size = now;
    }
}

fn message_key(i: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[12..].copy_from_slice(&i.to_be_bytes());
    key
}

/// Returns the key of an entry. The entries belong to 500 queues.
fn entry_key(i: u64) -> [u8; 28] {
    let mut key = [0; 28];
    key[12..20].copy_from_slice(&(i % 500).to_be_bytes());
    key[20..].copy_from_slice(&(i / 500).to_be_bytes());
    key
}

/// Returns user and system time of the process.
fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// Returns bytes that cannot be compressed (xorshift).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len.div_ceil(8))
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect()
}
