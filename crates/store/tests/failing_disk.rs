//! A disk that refuses writes: no acknowledged commit is lost, no commit is there in part, and the store continues when
//! the disk does.

#![allow(clippy::unwrap_used)]

use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::{Batch, Keyspace, Store, StoreError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const A: Keyspace = Keyspace(0);

/// Runs the tests one at a time, because the limit on file sizes affects the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn open(dir: &Path, reserve_bytes: u64) -> LsmStore {
    let options = LsmOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 64 << 10,
        reserve_bytes,
        open_files: 64,
        accept_loss: false,
    };
    LsmStore::open(dir, &["a"], options).unwrap()
}

fn batch(number: u32) -> Batch {
    let mut batch = Batch::new();
    for i in 0..8u32 {
        batch.put(A, &(number * 8 + i).to_be_bytes(), &[number as u8; 300]);
    }
    batch
}

fn keys(store: &dyn Store) -> BTreeMap<u32, usize> {
    let mut commits = BTreeMap::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        *commits.entry(u32::from_be_bytes(key.try_into().unwrap()) / 8).or_default() += 1;
        ControlFlow::Continue(())
    };
    store.scan(A, b"", b"", &mut visit).unwrap();
    commits
}

/// Checks that the store has all records of the first `commits` commits, and no others.
fn assert_has_all(store: &dyn Store, commits: u32) {
    assert_eq!(keys(store), (0..commits).map(|commit| (commit, 8)).collect());
}

/// Makes writes beyond `bytes` of a file fail from now on.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[test]
fn puts_are_refused_below_the_reserve_and_removals_are_not() {
    let _alone = one_at_a_time();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let store = open(&path, 0);
    store.commit(&batch(0)).unwrap();
    drop(store);

    let store = open(&path, u64::MAX / 2);
    let refused = store.commit(&batch(1)).unwrap_err();
    assert!(matches!(refused, StoreError::Full { reserve, .. } if reserve == u64::MAX / 2));
    assert_has_all(&store, 1);
    let mut removal = Batch::new();
    removal.remove(A, &0u32.to_be_bytes());
    store.commit(&removal).unwrap();
    assert_eq!(store.get(A, &0u32.to_be_bytes()).unwrap(), None);
}

#[test]
fn a_commit_that_cannot_be_written_is_not_there_in_part() {
    let _alone = one_at_a_time();
    // With a handler for the signal, the write fails instead of ending the process.
    let signalled = std::sync::Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, signalled).unwrap();
    for limit in [1, 5_000, 9_000, 20_000, 20_001, 90_000, 300_007] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        LsmStore::create(&path).unwrap();
        let store = open(&path, 0);
        limit_files(Some(limit));
        let mut next = 0;
        while store.commit(&batch(next)).is_ok() {
            next += 1;
        }
        // The commit fails repeatedly while the limit lasts.
        for _ in 0..3 {
            assert!(matches!(store.commit(&batch(next)), Err(StoreError::Io { .. })), "{limit}");
        }
        limit_files(None);
        for _ in 0..3 {
            store.commit(&batch(next)).unwrap();
            next += 1;
            assert_has_all(&store, next);
        }
        drop(store);
        assert_has_all(&open(&path, 0), next);
    }
}

#[test]
fn an_engine_that_cannot_write_its_tables_goes_on_when_it_can() {
    let _alone = one_at_a_time();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let store = open(&path, 0);
    let (tables, away) = (path.join("db/keyspaces/2/tables"), path.join("away"));
    std::fs::rename(&tables, &away).unwrap();
    let start = Instant::now();
    let mut next = 0;
    while store.commit(&batch(next)).is_ok() {
        next += 1;
        assert!(start.elapsed() < Duration::from_secs(60), "the engine did not fail");
    }
    std::fs::rename(&away, &tables).unwrap();
    store.commit(&batch(next)).unwrap();
    assert_has_all(&store, next + 1);
    drop(store);
    assert_has_all(&open(&path, 0), next + 1);
}

#[test]
fn a_snapshot_of_an_engine_that_failed_says_so() {
    let _alone = one_at_a_time();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let store = open(&path, 0);
    store.commit(&batch(0)).unwrap();
    let snapshot = store.snapshot().unwrap();
    limit_files(Some(1));
    let signalled = std::sync::Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, signalled).unwrap();
    store.commit(&batch(1)).unwrap_err();
    limit_files(None);
    store.commit(&batch(1)).unwrap();
    assert!(snapshot.scan(A, &mut |_, _| ControlFlow::Continue(())).is_err());
    assert_has_all(&store, 2);
}
