//! Disk space is freed when records are removed.

#![allow(clippy::unwrap_used)]

use barid_store::lsm::{LsmOptions, LsmStore};
use barid_store::{Batch, Keyspace, Store};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const A: Keyspace = Keyspace(0);

#[test]
fn a_drained_backlog_leaves_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    LsmStore::create(&path).unwrap();
    let options = LsmOptions {
        cache_bytes: 1 << 20,
        memtable_bytes: 8 << 20,
        reserve_bytes: 0,
        open_files: 64,
        accept_loss: false,
    };
    let store = LsmStore::open(&path, &["a"], options).unwrap();
    let mut batch = Batch::new();
    for i in 0..60_000u32 {
        batch.put(A, &i.to_be_bytes(), &[i as u8; 2000]);
        if i % 1000 == 999 {
            store.commit(&batch).unwrap();
            batch.clear();
        }
    }
    let tables = || std::fs::read_dir(path.join("db/keyspaces/2/tables")).unwrap();
    // A table may be deleted after its name was read and before its size is.
    let len = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().metadata().ok();
    let size = || tables().filter_map(len).map(|found| found.len()).sum::<u64>();
    let start = Instant::now();
    while size() < 100 << 20 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} bytes in tables", size());
        std::thread::sleep(Duration::from_millis(50));
    }
    let full = store.disk_bytes();
    for i in 0..59_000u32 {
        batch.remove(A, &i.to_be_bytes());
        if i % 1000 == 999 {
            store.commit(&batch).unwrap();
            batch.clear();
        }
    }
    let start = Instant::now();
    while size() > 32 << 20 || store.disk_bytes() > full / 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} bytes in tables", size());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut left = 0;
    store
        .scan(A, b"", b"", &mut |_, value| {
            assert_eq!(value.len(), 2000);
            left += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(left, 1000);
}
