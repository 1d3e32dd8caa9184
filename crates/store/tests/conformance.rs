//! Conformance tests that every engine must pass, run on each of them.

#![allow(clippy::unwrap_used)]

use barid_store::log::{LogOptions, LogStore};
use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::memory::Disk;
use barid_store::{Batch, Keyspace, Store};
use std::ops::ControlFlow;

const A: Keyspace = Keyspace(0);
const B: Keyspace = Keyspace(1);

/// An engine that can be closed and reopened.
trait Engine {
    fn open(&self) -> Box<dyn Store>;
}

impl Engine for Disk {
    fn open(&self) -> Box<dyn Store> {
        Box::new(Disk::open(self, 2))
    }
}

/// An lsm store in a directory that is deleted when the value is dropped.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        let dir = tempfile::tempdir().unwrap();
        LsmStore::create(&dir.path().join("store")).unwrap();
        Directory(dir)
    }
}

impl Engine for Directory {
    fn open(&self) -> Box<dyn Store> {
        let options = LsmOptions {
            cache_bytes: 1 << 20,
            memtable_bytes: 4 << 20,
            reserve_bytes: 0,
            open_files: 64,
            accept_loss: false,
        };
        Box::new(LsmStore::open(&self.0.path().join("store"), &["a", "b"], options).unwrap())
    }
}

/// A log store in a directory that is deleted when the value is dropped.
struct LogDirectory(tempfile::TempDir);

impl LogDirectory {
    fn new() -> LogDirectory {
        let dir = tempfile::tempdir().unwrap();
        LogStore::create(&dir.path().join("store")).unwrap();
        LogDirectory(dir)
    }
}

impl Engine for LogDirectory {
    fn open(&self) -> Box<dyn Store> {
        let dir = self.0.path().join("store");
        Box::new(LogStore::open(&dir, 2, &LogOptions::default()).unwrap())
    }
}

/// Runs each test of the suite on each engine.
macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $test() { super::$test(&super::Disk::new()); })+
        }
        mod log {
            $(#[test] fn $test() { super::$test(&super::LogDirectory::new()); })+
        }
        mod lsm {
            $(#[test] fn $test() { super::$test(&super::Directory::new()); })+
        }
    };
}

suite!(
    a_value_is_what_was_put_last,
    keys_are_ordered_as_bytes,
    a_scan_sees_its_prefix_from_a_key_on,
    a_scan_ends_when_it_is_told_to,
    changes_of_a_batch_apply_in_their_order,
    keyspaces_do_not_touch_each_other,
    empty_and_large_values_are_values,
    an_empty_batch_does_nothing,
    a_snapshot_stays_as_it_was,
    all_is_there_after_a_reopen,
    random_histories,
);

fn put(store: &dyn Store, keyspace: Keyspace, records: &[(&[u8], &[u8])]) {
    let mut batch = Batch::new();
    records.iter().for_each(|(key, value)| batch.put(keyspace, key, value));
    store.commit(&batch).unwrap();
}

fn remove(store: &dyn Store, keyspace: Keyspace, key: &[u8]) {
    let mut batch = Batch::new();
    batch.remove(keyspace, key);
    store.commit(&batch).unwrap();
}

fn keys(store: &dyn Store, keyspace: Keyspace, prefix: &[u8], from: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    store.scan(keyspace, prefix, from, &mut visit).unwrap();
    keys
}

fn a_value_is_what_was_put_last(engine: &dyn Engine) {
    let store = engine.open();
    assert_eq!(store.get(A, b"key").unwrap(), None);
    put(&*store, A, &[(b"key", b"one")]);
    put(&*store, A, &[(b"key", b"two")]);
    assert_eq!(store.get(A, b"key").unwrap().unwrap(), b"two");
    remove(&*store, A, b"key");
    assert_eq!(store.get(A, b"key").unwrap(), None);
    remove(&*store, A, b"key");
    put(&*store, A, &[(b"key", b"three")]);
    assert_eq!(store.get(A, b"key").unwrap().unwrap(), b"three");
}

fn keys_are_ordered_as_bytes(engine: &dyn Engine) {
    let store = engine.open();
    let ordered: [&[u8]; 8] = [b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"b", b"\xff", b"\xff\xff"];
    let mut shuffled = ordered;
    shuffled.reverse();
    shuffled.swap(1, 5);
    shuffled.iter().for_each(|key| put(&*store, A, &[(key, b"")]));
    assert_eq!(keys(&*store, A, b"", b""), ordered);
}

fn a_scan_sees_its_prefix_from_a_key_on(engine: &dyn Engine) {
    let store = engine.open();
    for key in
        [&b"a"[..], b"b", b"b\0", b"b\x01", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"]
    {
        put(&*store, A, &[(key, b"")]);
    }
    let scan = |prefix: &[u8], from: &[u8]| keys(&*store, A, prefix, from);
    assert_eq!(scan(b"b", b""), [&b"b"[..], b"b\0", b"b\x01", b"b\xff", b"b\xff\xff"]);
    assert_eq!(scan(b"b", b"a"), scan(b"b", b""));
    assert_eq!(scan(b"b", b"b\x01"), [&b"b\x01"[..], b"b\xff", b"b\xff\xff"]);
    assert_eq!(scan(b"b", b"b\x02"), [&b"b\xff"[..], b"b\xff\xff"]);
    assert_eq!(scan(b"b\xff", b""), [&b"b\xff"[..], b"b\xff\xff"]);
    assert_eq!(scan(b"\xff", b""), [&b"\xff"[..], b"\xff\xff"]);
    assert_eq!(scan(b"", b"c"), [&b"c"[..], b"\xff", b"\xff\xff"]);
    assert!(scan(b"b", b"c").is_empty());
    assert!(scan(b"b", b"d").is_empty());
    assert!(scan(b"d", b"").is_empty());
    assert!(keys(&*store, B, b"", b"").is_empty());
}

fn a_scan_ends_when_it_is_told_to(engine: &dyn Engine) {
    let store = engine.open();
    put(&*store, A, &[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]);
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.scan(A, b"", b"", &mut visit).unwrap();
    assert_eq!(seen, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
}

fn changes_of_a_batch_apply_in_their_order(engine: &dyn Engine) {
    let store = engine.open();
    let mut batch = Batch::new();
    batch.put(A, b"twice", b"one");
    batch.put(A, b"twice", b"two");
    batch.put(A, b"gone", b"one");
    batch.remove(A, b"gone");
    batch.remove(A, b"back");
    batch.put(A, b"back", b"one");
    store.commit(&batch).unwrap();
    assert_eq!(store.get(A, b"twice").unwrap().unwrap(), b"two");
    assert_eq!(store.get(A, b"gone").unwrap(), None);
    assert_eq!(store.get(A, b"back").unwrap().unwrap(), b"one");
    drop(store);
    assert_eq!(keys(&*engine.open(), A, b"", b""), [&b"back"[..], b"twice"]);
}

fn keyspaces_do_not_touch_each_other(engine: &dyn Engine) {
    let store = engine.open();
    put(&*store, A, &[(b"key", b"a")]);
    put(&*store, B, &[(b"key", b"b")]);
    remove(&*store, A, b"key");
    assert_eq!(store.get(A, b"key").unwrap(), None);
    assert_eq!(store.get(B, b"key").unwrap().unwrap(), b"b");
}

fn empty_and_large_values_are_values(engine: &dyn Engine) {
    let store = engine.open();
    let large = vec![7; 5 << 20];
    let long_key = vec![1; 65535];
    put(&*store, A, &[(b"empty", b""), (b"large", &large), (&long_key, b"long")]);
    let check = |store: &dyn Store| {
        assert_eq!(store.get(A, b"empty").unwrap().unwrap(), b"");
        assert_eq!(store.get(A, b"large").unwrap().unwrap(), large);
        assert_eq!(store.get(A, &long_key).unwrap().unwrap(), b"long");
    };
    check(&*store);
    drop(store);
    check(&*engine.open());
}

fn an_empty_batch_does_nothing(engine: &dyn Engine) {
    let store = engine.open();
    store.commit(&Batch::new()).unwrap();
    assert!(keys(&*store, A, b"", b"").is_empty());
}

fn a_snapshot_stays_as_it_was(engine: &dyn Engine) {
    let store = engine.open();
    let count = 3000u32;
    let mut batch = Batch::new();
    for i in 0..count {
        batch.put(A, &i.to_be_bytes(), b"before");
    }
    store.commit(&batch).unwrap();
    let snapshot = store.snapshot().unwrap();
    remove(&*store, A, &7u32.to_be_bytes());
    put(&*store, A, &[(&8u32.to_be_bytes(), b"after"), (b"new", b"after")]);
    put(&*store, B, &[(b"new", b"after")]);
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(value, b"before");
        seen.push(u32::from_be_bytes(key.try_into().unwrap()));
        ControlFlow::Continue(())
    };
    snapshot.scan(A, &mut visit).unwrap();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    snapshot.scan(B, &mut |_, _| panic!("came later")).unwrap();
    let mut visited = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        visited += 1;
        if visited == 2000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    snapshot.scan(A, &mut visit).unwrap();
    assert_eq!(visited, 2000);
}

fn all_is_there_after_a_reopen(engine: &dyn Engine) {
    for round in 0..5u32 {
        let store = engine.open();
        assert_eq!(keys(&*store, A, b"", b"").len(), round as usize * 100);
        assert_eq!(keys(&*store, B, b"", b"").len(), usize::from(round > 0));
        for i in 0..100 {
            put(&*store, A, &[(&(round * 100 + i).to_be_bytes(), &[1; 1000])]);
            put(&*store, B, &[(b"round", &round.to_be_bytes())]);
        }
    }
    let store = engine.open();
    assert_eq!(store.get(B, b"round").unwrap().unwrap(), 4u32.to_be_bytes());
}

fn random_histories(engine: &dyn Engine) {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Commit(Vec<(bool, Vec<u8>, Option<Vec<u8>>)>),
        Scan(bool, Vec<u8>, Vec<u8>),
        Reopen,
    }

    // Few different keys, so that changes collide.
    let key = || prop::collection::vec(prop::sample::select(&[0u8, 1, 254, 255][..]), 1..4);
    let some_key = || prop_oneof![Just(Vec::new()), key()];
    let value = prop::option::weighted(0.6, prop::collection::vec(any::<u8>(), 0..300));
    let step = prop_oneof![
        8 => prop::collection::vec((any::<bool>(), key(), value), 0..20).prop_map(Step::Commit),
        8 => (any::<bool>(), some_key(), some_key()).prop_map(|(b, prefix, from)| Step::Scan(b, prefix, from)),
        1 => Just(Step::Reopen),
    ];
    let config =
        ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step, 1..40))| {
        let mut store = engine.open();
        // Remove what earlier cases left.
        let mut batch = Batch::new();
        for keyspace in [A, B] {
            keys(&*store, keyspace, b"", b"").iter().for_each(|key| batch.remove(keyspace, key));
        }
        store.commit(&batch).unwrap();
        let mut model = [BTreeMap::new(), BTreeMap::new()];
        for step in steps {
            match step {
                Step::Commit(changes) => {
                    let mut batch = Batch::new();
                    for (b, key, value) in changes {
                        let keyspace = Keyspace(u8::from(b));
                        match value {
                            Some(value) => {
                                batch.put(keyspace, &key, &value);
                                model[usize::from(b)].insert(key, value);
                            }
                            None => {
                                batch.remove(keyspace, &key);
                                model[usize::from(b)].remove(&key);
                            }
                        }
                    }
                    store.commit(&batch).unwrap();
                }
                Step::Scan(b, prefix, from) => {
                    let mut seen = Vec::new();
                    store.scan(Keyspace(u8::from(b)), &prefix, &from, &mut |key, value| {
                        seen.push((key.to_vec(), value.to_vec()));
                        ControlFlow::Continue(())
                    }).unwrap();
                    let model = model[usize::from(b)].iter();
                    let expected: Vec<_> = model
                        .filter(|(key, _)| key.starts_with(&prefix) && **key >= from)
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect();
                    prop_assert_eq!(seen, expected);
                }
                Step::Reopen => {
                    drop(store);
                    store = engine.open();
                }
            }
        }
    });
}
