//! The disk of the memory engine fails, delays and forgets on demand.

#![allow(clippy::unwrap_used)]

use barid_store::memory::{Disk, Fault, MemoryStore, Timing};
use barid_store::{Batch, Keyspace, Store, StoreError};
use std::time::Duration;

const A: Keyspace = Keyspace(0);

fn put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(A, key, value);
    batch
}

fn remove(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.remove(A, key);
    batch
}

fn value(store: &MemoryStore) -> Option<Vec<u8>> {
    store.get(A, b"key").unwrap()
}

#[test]
fn a_crash_forgets_what_is_not_durable() {
    let disk = Disk::new();
    let store = disk.open(1);
    store.commit(&put(b"key", b"durable")).unwrap();
    disk.set_timing(Timing::Deferred);
    store.commit(&put(b"key", b"settled")).unwrap();
    store.commit(&remove(b"key")).unwrap();
    store.commit(&put(b"key", b"later")).unwrap();
    assert_eq!(disk.unsettled(), 3);
    assert_eq!(value(&store).unwrap(), b"later");
    disk.settle(1);
    assert_eq!(disk.unsettled(), 2);
    disk.crash();
    assert!(store.get(A, b"key").is_err() && store.commit(&put(b"key", b"dead")).is_err());
    assert_eq!(value(&disk.open(1)).unwrap(), b"settled");
}

#[test]
fn a_crash_puts_back_what_was_not_there() {
    let disk = Disk::new();
    disk.set_timing(Timing::Deferred);
    disk.open(1).commit(&put(b"key", b"value")).unwrap();
    disk.crash();
    assert_eq!(value(&disk.open(1)), None);
    assert_eq!(disk.unsettled(), 0);
}

#[test]
fn a_blocked_commit_returns_when_it_is_settled() {
    let disk = Disk::new();
    let store = disk.open(1);
    disk.set_timing(Timing::Blocked);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit(&put(b"key", b"value")));
        while disk.unsettled() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(value(&store), None);
        assert!(!commit.is_finished());
        disk.settle(1);
        commit.join().unwrap().unwrap();
    });
    assert_eq!(value(&store).unwrap(), b"value");
    assert_eq!(disk.unsettled(), 0);
}

#[test]
fn a_blocked_commit_fails_in_a_crash() {
    let disk = Disk::new();
    let store = disk.open(1);
    disk.set_timing(Timing::Blocked);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit(&put(b"key", b"value")));
        while disk.unsettled() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.crash();
        assert!(commit.join().unwrap().is_err());
    });
    assert_eq!(value(&disk.open(1)), None);
}

#[test]
fn a_full_disk_takes_removals() {
    let disk = Disk::new();
    let store = disk.open(1);
    store.commit(&put(b"key", b"value")).unwrap();
    disk.fail(Some(Fault::Full));
    assert!(matches!(store.commit(&put(b"key", b"new")), Err(StoreError::Full { .. })));
    assert_eq!(value(&store).unwrap(), b"value");
    store.commit(&remove(b"key")).unwrap();
    assert_eq!(value(&store), None);
    disk.fail(None);
    store.commit(&put(b"key", b"new")).unwrap();
    assert_eq!(value(&store).unwrap(), b"new");
}

#[test]
fn a_failed_commit_may_be_there_after_a_crash_and_not_before() {
    let disk = Disk::new();
    for (fault, there) in [(Fault::Io, false), (Fault::IoButWritten, true)] {
        let store = disk.open(1);
        disk.fail(Some(fault));
        assert!(matches!(store.commit(&put(b"key", b"value")), Err(StoreError::Io { .. })));
        assert_eq!(value(&store), None);
        disk.fail(None);
        disk.crash();
        assert_eq!(value(&disk.open(1)).is_some(), there);
    }
}

#[test]
fn a_failed_commit_is_undone_by_the_next() {
    let disk = Disk::new();
    let store = disk.open(1);
    disk.fail(Some(Fault::IoButWritten));
    store.commit(&put(b"key", b"value")).unwrap_err();
    disk.fail(None);
    store.commit(&put(b"other", b"value")).unwrap();
    disk.crash();
    assert_eq!(value(&disk.open(1)), None);
}
