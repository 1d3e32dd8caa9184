//! A damaged data directory that is opened all the same: losses are reported and the damaged files
//! are kept aside.

#![allow(clippy::unwrap_used)]

use barid_store::{
    Batch, DataDir, Engine, Keyspace, LostRecord, Options, Store, StoreError, salvage, verify,
};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const A: Keyspace = Keyspace(0);

fn options(engine: Engine) -> Options<'static> {
    Options { shards: Some(2), engine, keyspaces: &["a"], reserve_bytes: 0, ..Options::default() }
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 500]
}

/// Creates a closed directory with a hundred records in the first shard, each in its own commit.
fn filled(engine: Engine) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path(), &options(engine)).unwrap();
    for number in 0..100 {
        let mut batch = Batch::new();
        batch.put(A, &key(number), &value(number));
        data.shards()[0].commit(&batch).unwrap();
    }
    drop(data);
    dir
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("shard-000/log-0000000001")
}

/// Flips a bit in the value of a record. Returns the offset of the value.
fn damage_value_of(dir: &Path, number: u32) -> u64 {
    let mut bytes = fs::read(segment(dir)).unwrap();
    // The preceding key may end with the same byte as the value.
    let at = bytes.windows(500).rposition(|window| window == value(number)).unwrap();
    bytes[at + 250] ^= 1;
    fs::write(segment(dir), bytes).unwrap();
    at as u64
}

fn records(store: &dyn Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        records.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    store.scan(A, b"", b"", &mut visit).unwrap();
    records
}

#[test]
fn a_damaged_value_is_told_kept_aside_and_left_out() {
    let dir = filled(Engine::Log);
    let at = damage_value_of(dir.path(), 42);
    let damaged = fs::read(segment(dir.path())).unwrap();
    let options = options(Engine::Log);
    assert!(matches!(DataDir::open(dir.path(), &options), Err(StoreError::Corrupt(_))));

    let report = verify(dir.path(), &options, &mut |_, _, _, _| Ok(()), &mut |_, _| ()).unwrap();
    let [loss] = &report.losses[..] else { panic!("{report:?}") };
    assert_eq!((loss.shard, &loss.bytes, loss.is_all), (0, &(at..at + 500), true));
    let lost = LostRecord { keyspace: A, key: key(42), value_len: Some(500) };
    assert_eq!(loss.records, [lost]);

    let aside = dir.path().join("quarantine/first");
    let (data, copies) = salvage(dir.path(), &options, &aside).unwrap();
    let left = records(&*data.shards()[0]);
    assert_eq!(left.len(), 99);
    assert!(
        left.iter()
            .all(|(key, value)| *value
                == self::value(u32::from_be_bytes(key[..].try_into().unwrap())))
    );
    drop(data);
    let names: Vec<_> =
        copies.iter().map(|copy| copy.strip_prefix(&aside).unwrap().to_owned()).collect();
    assert_eq!(names, [Path::new("shard-000/commits"), Path::new("shard-000/log-0000000001")]);
    assert_eq!(fs::read(&copies[1]).unwrap(), damaged, "as it was");

    // From then on the directory is like any other.
    let report = verify(dir.path(), &options, &mut |_, _, _, _| Ok(()), &mut |_, _| ()).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let data = DataDir::open(dir.path(), &options).unwrap();
    assert_eq!(records(&*data.shards()[0]), left);
}

#[test]
fn nothing_is_changed_when_the_copies_cannot_be_made() {
    let dir = filled(Engine::Log);
    damage_value_of(dir.path(), 42);
    let before = fs::read(segment(dir.path())).unwrap();
    fs::write(dir.path().join("quarantine"), "in the way").unwrap();
    let aside = dir.path().join("quarantine/first");
    assert!(matches!(
        salvage(dir.path(), &options(Engine::Log), &aside),
        Err(StoreError::Io { .. })
    ));
    assert_eq!(fs::read(segment(dir.path())).unwrap(), before);
}

#[test]
fn the_other_engine_cannot_do_without_what_is_damaged() {
    let dir = filled(Engine::Lsm);
    let Err(StoreError::Unusable(why)) =
        salvage(dir.path(), &options(Engine::Lsm), &dir.path().join("aside"))
    else {
        panic!("it has to be refused")
    };
    assert!(why.contains("restore a backup"), "{why}");
}
